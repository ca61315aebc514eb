"""The terminal: a live progress line where there is one to redraw, plain lines where output is piped."""

import re
import shlex
import time
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from threading import Timer
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn
from rich.text import Text

from cookhouse.errors import printable
from cookhouse.telemetry import events
from cookhouse.telemetry.console import make_console, say
from cookhouse.telemetry.declared import find_metric
from cookhouse.telemetry.durations import span
from cookhouse.telemetry.intervals import measured_text
from cookhouse.telemetry.keys import STEP_SECONDS, TEST_TRUNCATED, TRAIN_TOKENS
from cookhouse.telemetry.metric import COMPANIONS
from cookhouse.telemetry.notes import in_view
from cookhouse.telemetry.record import Event, Record, Span
from cookhouse.telemetry.steps import after_step

_RECENT_STEPS = 20
_QUIET_SECONDS = 2.0
_NOTICED_SECONDS = 1.0
"""What takes less is not logged in lines that stay."""
_MAX_FIGURES = 4
_FORMAT = re.compile(r"\{[^}]*\}")
_SPINNER_CELLS = 4  # with the spaces between the columns, and one of the bar


class TerminalSink:
    """Prints what a person wants to see of a run: what is being done, step, loss, tokens per second, time left.

    On a terminal one line is redrawn, and what should stay is printed above it. Elsewhere every line stays; a stage is
    then logged once it has taken a second, and steps at most every two seconds, the first and the last always.
    """

    def __init__(
        self, console: Console, program: str = "cookhouse", *, is_page_served: bool = False, every_note: bool = True
    ) -> None:
        """`program` is how the user calls cookhouse. Where the page is served, its address is told by whoever serves
        it. Notes that follow one another are shown all, or the first of them.
        """
        self._console = console
        self._program = program
        self._has_page = is_page_served
        self._every_note = every_note
        self._notes: list[str] = []
        """Those that the next other record ends."""
        self._noted: set[str] = set()
        self._recent: deque[tuple[float, float]] = deque(maxlen=_RECENT_STEPS)
        """Tokens and seconds: a single step ends at once when it waited behind another, or after minutes."""
        self._stage = ""
        self._unsaid: Timer | None = None
        self._trains = True
        self._printed_at = -_QUIET_SECONDS
        self._progress = (
            Progress(SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), console=console, transient=True)
            if console.is_terminal
            else None
        )
        self._task = None if self._progress is None else self._progress.add_task("starting", total=None)

    def write(self, record: Record) -> None:
        if isinstance(record, Event) and record.name == events.DATA_NOTE:
            self._notes.append(record.text["text"])
            return
        self._say_notes()
        if isinstance(record, Span) and record.name == self._stage:
            self._drop_unsaid()
        if not isinstance(record, Event):
            return
        if self._progress is not None:
            self._progress.start()  # again and again: it does nothing once it runs
        match record.name:
            case events.RUN_START:
                self._start(record)
            case events.RUN_DEFAULTS:
                self._say(f"defaults: {record.text['text']}")
            case events.RUN_SERVICE:
                self._say(record.text["service"])
            case events.HUB_DOWNLOAD | events.RUN_ARTIFACTS | events.RUN_PART:
                self._say(record.text["text"])
            case events.STAGE_START:
                self._stage = record.text["stage"]
                self._begin(record.text["doing"])
            case events.STAGE_PART:
                self._begin(record.text["doing"])
            case events.DATA_COUNTS:
                self._say(f"data: {record.text['text']}")
            case events.RUN_WARNING:
                self._say(f"warning: {record.text['text']}")
            case events.RUN_FINDING:
                self._say(f"diagnosis after step {record.step}: {record.text['text']}")
                self._say(f"  try: {record.text['advice']}")
            case events.RUN_ESTIMATE:
                self._say(record.text["text"])
            case events.TRAINING_STEP:
                self._step(record)
            case events.TRAINING_CHECKPOINT:
                self._say(f"checkpoint {record.text['checkpoint']} saved {after_step(record.step or 0)}")
            case events.TRAINING_STOPPED:
                self._say(record.text["text"])
            case events.EVAL_PROGRESS:
                self._evaluated(record)
            case events.EVAL_COMPLETE:
                self._say(_evaluation_line(record, f" {after_step(record.step or 0)}" if self._trains else ""))
            case events.MODEL_REGISTERED:
                self._say(f"registered as {record.text['model']}")
            case events.RUN_WAITING:
                self._say(f"still waiting for {record.text['what']} ({record.metrics['seconds']:.0f} s)")
            case events.RUN_INTERRUPT:
                self._say("interrupted: finishing the steps in flight, then saving (Ctrl-C again stops at once)")
            case events.RUN_ENDS:
                self._say(f"{record.text['text']}; finishing the steps in flight, then saving")
            case events.TELEMETRY_FAILED:
                self._say(f"{record.text['sink']} {record.text['what']}: {record.text['error']}")

    def tell(self, text: str) -> None:
        """Say what no record has; from any thread."""
        self._say(text)

    def close(self) -> None:
        self._say_notes()
        self._drop_unsaid()
        if self._progress is not None:
            self._progress.stop()

    def _start(self, record: Event) -> None:
        self._trains = record.metrics.get("total_steps", 0) > 0
        gone_on = f", going on {after_step(record.step)} of {record.metrics['total_steps']:,.0f}" if record.step else ""
        self._say(f"{record.text['recipe']} of {record.text['model']} in {record.text['folder']}{gone_on}")
        if not self._has_page:  # a run that consists of others has theirs among its own
            self._say(f"page: open it with {self._program} view {shlex.quote(record.text['folder'])}")
        self._has_page = True

    def _say_notes(self) -> None:
        """Those that were not said before: runs of one pipeline have many in common."""
        new = [note for note in self._notes if note not in self._noted]
        self._notes.clear()
        self._noted.update(new)
        shown, more = in_view(new, is_whole=self._every_note)
        for note in shown:
            self._say(f"note: {note}")
        if more:
            self._say(more)

    def _begin(self, doing: str) -> None:
        if self._progress is not None:
            assert self._task is not None
            self._progress.update(self._task, description=escape(printable(doing)), refresh=True)
            return
        self._drop_unsaid()
        self._unsaid = Timer(_NOTICED_SECONDS, self._say, [doing])
        self._unsaid.daemon = True
        self._unsaid.start()

    def _drop_unsaid(self) -> None:
        if self._unsaid is not None:
            self._unsaid.cancel()
        self._unsaid = None

    def _step(self, record: Event) -> None:
        assert record.step is not None
        total_steps = int(record.metrics["total_steps"])
        now = time.monotonic()
        self._recent.append((record.metrics[TRAIN_TOKENS], record.metrics[STEP_SECONDS]))
        tokens, seconds = map(sum, zip(*self._recent, strict=True))
        least = [f"step {record.step}/{total_steps}", *_metric_lines(record.metrics).values()]
        pace, left = f"{tokens / seconds:,.0f} tokens/s", _time_left(record)
        line = _joined(*least, pace, left)
        if self._progress is not None:
            assert self._task is not None
            fitting = _fitting(least, pace, left, self._console.width - _SPINNER_CELLS)
            self._progress.update(self._task, description=fitting, completed=record.step, total=total_steps)
        is_due = self._progress is None and now - self._printed_at >= _QUIET_SECONDS
        if is_due or record.step == total_steps:
            self._printed_at = now
            self._say(line)

    def _evaluated(self, record: Event) -> None:
        done, total = int(record.metrics["done"]), int(record.metrics["total"])
        line = f"{record.text['benchmark']} {done:,}/{total:,}  {_clock(record.metrics['seconds_left'])} left"
        if self._progress is not None:
            assert self._task is not None
            self._progress.update(self._task, description=escape(line), completed=done, total=total)
        elif time.monotonic() - self._printed_at >= _QUIET_SECONDS:
            self._printed_at = time.monotonic()
            self._say(line)

    def _say(self, line: str) -> None:
        say(self._console, Text(printable(line)))


def make_terminal_sink(folder: Path, settings: Mapping[str, Any]) -> TerminalSink:
    """The sink `terminal`."""
    del folder, settings
    return TerminalSink(make_console())


def _time_left(record: Event) -> str:
    """The time left after a step: a range, or a clock where there is one figure; empty where it is unknown."""
    low, high = (record.metrics.get(f"seconds_left_{end}") for end in ("low", "high"))
    if low is None or high is None:
        return ""
    return f"{_clock(high)} left" if low == high else f"{span(low, high)} left"


def _fitting(least: Sequence[str], pace: str, left: str, cells: int) -> str:
    """The parts in one line, without those that have no room: the pace goes first, then the time left."""
    lines = (_joined(*least, pace, left), _joined(*least, left), _joined(*least))
    return next((line for line in lines if len(line) <= cells), least[0])


def _joined(*parts: str) -> str:
    return "  ".join(filter(None, parts))


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def _metric_lines(metrics: Mapping[str, float]) -> dict[str, str]:
    """Metrics that have a line of their own, each as it says, in the order in which they were measured."""
    lines = {name: find_metric(name).line for name in metrics if name != TEST_TRUNCATED or metrics[name]}
    return {name: line.format(metrics[name]) for name, line in lines.items() if line}


def _evaluation_line(record: Event, when: str) -> str:
    metrics = record.metrics
    lines = _metric_lines(metrics)
    if not lines:
        some = [name for name in metrics if not name.endswith(COMPANIONS)][:_MAX_FIGURES]
        lines = {name: f"{(metric := find_metric(name)).label} {metric.text(metrics[name])}" for name in some}
    figures = [_measured_line(name, text, metrics) for name, text in lines.items()]
    return f"evaluation{when}: {'; '.join(figures)}"


def _measured_line(name: str, text: str, metrics: Mapping[str, float]) -> str:
    """A metric's line, its value as its error leaves it where that was measured."""
    stderr, n = metrics.get(f"{name}_stderr"), metrics.get(f"{name}_n")
    if stderr is None and n is None:
        return text
    metric = find_metric(name)
    shown = measured_text(metric, metrics[name], stderr, n)
    return _FORMAT.sub(lambda _: shown, metric.line) if metric.line else f"{metric.label} {shown}"
