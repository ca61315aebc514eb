"""The contract of sinks."""

import copy
import math
import threading
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from cookhouse.telemetry import Event, MetricsRow, Record, Sink, Span
from cookhouse.testing.contract import Contract, require

Row: TypeAlias = Mapping[str, Any]
"""A metrics row with its `step`, as a line of metrics.jsonl."""

_ROWS: Sequence[Row] = (
    {"step": 0, "train/loss": 2.5, "train/num_tokens": 128},
    {"step": 1, "train/loss": 1 / 3, "optim/lr": 2e-45, "verdict": "a text, ünïcode\nof two lines"},
    {"step": 4, "train/loss": -0.1, "train/num_tokens": 2**40, "verdict": "<b>another</b> & 'more'"},
)
_SPAN = Span(name="open_run", start_seconds=10.0, end_seconds=10.5)


class SinkContract(Contract[Sink]):
    """The suite over a sink. `make` gives one that has started; `rows` reads back what one that is closed holds."""

    single_precision: bool = False
    """Whether the tool keeps 32-bit floats, and rows are compared as those."""

    @abstractmethod
    def rows(self, sink: Sink) -> Sequence[Row] | None:
        """Rows that a sink which `make` gave holds, by step; None if it keeps no rows."""

    def test_takes_every_kind_of_record(self) -> None:
        records: Sequence[Record] = (
            Event(
                name="run.start",
                step=0,
                metrics={"total_steps": 5},
                text={"recipe": "supervised", "model": "cookhouse/tiny", "folder": "runs/one"},
            ),
            Event(name="my.event"),
            _SPAN,
            Span(name="loop", start_seconds=1.0, end_seconds=1.0, step=3, error="ValueError"),
            MetricsRow(step=0, metrics={"train/loss": 1.0}),
            MetricsRow(step=1, metrics={}),
            Event(name="run.end", text={"status": "success"}),
        )
        self._written(records)

    def test_closes_before_anything_came(self) -> None:
        self._written(())

    def test_closes_when_the_run_broke(self) -> None:
        self._written([MetricsRow(step=0, metrics={"train/loss": 1.0})])

    def test_keeps_rows(self) -> None:
        kept = self.rows(self._written(_records(_ROWS)))
        require(
            self._are_kept(_ROWS, kept),
            f"every row is kept with its step, its numbers and its text; of {list(_ROWS)} there is {kept}",
        )

    def test_takes_numbers_that_are_not_finite(self) -> None:
        metrics = {"a": math.nan, "b": math.inf, "c": -math.inf, "d": 1e300, "e": 1.0}
        self._written([MetricsRow(step=0, metrics=metrics)])

    def test_takes_names_of_any_kind(self) -> None:
        names = ("env/my set@v2/reward", "größe", "<b>&'\"", "a" * 200, "1/2")
        self._written([MetricsRow(step=0, metrics=dict.fromkeys(names, 1.0) | {f"{name}!": "x" for name in names})])

    def test_leaves_records_as_they_are(self) -> None:
        row = MetricsRow(step=2, metrics={"train/loss": 1.5, "verdict": "good"})
        before = copy.deepcopy(row)
        self._written([row])
        require(row == before, f"a sink does not change a record; {before} became {row}")

    def test_may_be_written_to_in_another_thread(self) -> None:
        # A run in a notebook has a thread of its own; what was made outside of it is used there.
        sink = self.make()
        failures: list[Exception] = []

        def work() -> None:
            try:
                _write(sink, [_SPAN, *_records(_ROWS)])
            except Exception as error:
                failures.append(error)

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        require(not failures, f"a sink may be used in another thread than made in; it raised {failures}")

    def test_two_at_once_do_not_mix(self) -> None:
        sinks = [self.make(), self.make()]
        for step in range(3):
            for number, sink in enumerate(sinks):
                sink.write(MetricsRow(step=step, metrics={"number": float(number)}))
        for sink in sinks:
            sink.close()
        for number, sink in enumerate(sinks):
            kept = self.rows(sink)
            wanted = [{"step": step, "number": float(number)} for step in range(3)]
            require(
                self._are_kept(wanted, kept),
                f"two sinks at once keep what each was given; one has {kept} instead of {wanted}",
            )

    def _are_kept(self, rows: Sequence[Row], kept: Sequence[Row] | None) -> bool:
        number = np.float32 if self.single_precision else float
        return kept is None or _comparable(kept, number) == _comparable(rows, number)

    def _written(self, records: Sequence[Record]) -> Sink:
        sink = self.make()
        _write(sink, records)
        return sink


def _write(sink: Sink, records: Sequence[Record]) -> None:
    for record in records:
        sink.write(record)
    sink.close()


def _records(rows: Sequence[Row]) -> list[MetricsRow]:
    return [
        MetricsRow(step=row["step"], metrics={name: value for name, value in row.items() if name != "step"})
        for row in rows
    ]


def _comparable(rows: Sequence[Row], number: Callable[[Any], Any]) -> list[Row]:
    """By step, with numbers as a tool has them: whole ones may come back as floats of the same value."""
    plain = [
        {name: value if isinstance(value, str) else float(number(value)) for name, value in row.items()} for row in rows
    ]
    return sorted(plain, key=lambda row: row["step"])
