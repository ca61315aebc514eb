from pathlib import Path

import pytest

from cookhouse.errors import InputError
from cookhouse.telemetry import Event, JsonlSink, MetricsRow, cut_metrics, read_metrics


def test_rows_are_readable_before_the_sink_is_closed(tmp_path: Path) -> None:
    # Catches buffering: a killed run would lose rows of steps that its checkpoint says are done.
    sink = JsonlSink(tmp_path / "metrics.jsonl")
    sink.write(MetricsRow(step=0, metrics={"train/loss": 0.1 + 0.2}))
    sink.write(Event(name="training.step"))
    assert read_metrics(tmp_path / "metrics.jsonl") == [{"step": 0, "train/loss": 0.1 + 0.2}]
    sink.close()


def test_cut_drops_later_steps_and_a_torn_line(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 0, "a": 1}\n{"step": 1, "a": 2}\n{"step": 2, "a": 3}\n{"step": 3, "a"')
    cut_metrics(path, 2)
    assert path.read_text() == '{"step": 0, "a": 1}\n{"step": 1, "a": 2}\n'
    cut_metrics(path, 0)
    assert read_metrics(path) == []


@pytest.mark.parametrize("line", ['{"step": 1, "a"', "[1]", '{"a": 1}', '{"step": "1"}', "\udcff"])
def test_a_damaged_line_is_named(tmp_path: Path, line: str) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text(f'{{"step": 0}}\n{line}\n{{"step": 2}}\n', encoding="utf-8", errors="surrogateescape")
    with pytest.raises(InputError, match=r"metrics\.jsonl, line 2, is not .*; remove it"):
        read_metrics(path)


def test_missing_file_has_no_rows(tmp_path: Path) -> None:
    cut_metrics(tmp_path / "metrics.jsonl", 5)
    assert read_metrics(tmp_path / "metrics.jsonl") == []
