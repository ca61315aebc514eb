"""What a run does and waits for, as its log tells: the lines are those that `LogSink` writes."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.runs.kit import make_run

from cookhouse.runs.listing.find import find_runs
from cookhouse.runs.listing.overview import overview_of
from cookhouse.runs.reading.progress import RunProgress, progress_of
from cookhouse.telemetry import Event, LogSink, events, log_file, read_event

WAITING = Event(name=events.RUN_WAITING, step=0, metrics={"seconds": 10.0}, text={"what": "a=b seconds=9: to \x1b[2J"})
STAGE = Event(name=events.STAGE_START, text={"stage": "save", "doing": "saving the weights"})
STEP = Event(name=events.RL_STEP, step=2, metrics={"loss": 1.0})
TIMED = Event(
    name=events.TRAINING_STEP,
    step=3,
    metrics={"loss": 1.0, "seconds_left_low": 15.0, "seconds_left_high": 25.0, "seconds_left": 20.0},
    text={"config": "seconds_left=1"},
)
EVALUATED = Event(
    name=events.EVAL_PROGRESS, metrics={"done": 3.0, "total": 20.0, "seconds_left": 5.0}, text={"benchmark": "gsm8k"}
)


def progress(tmp_path: Path, *logged: Event, later: float = 1.0) -> RunProgress:
    run = make_run(tmp_path / "runs" / "a")
    with log_file(run / "logs.log"):
        for event in logged:
            LogSink().write(event)
    (found,) = find_runs(tmp_path / "runs")
    return progress_of(overview_of(found), now=datetime.now(UTC) + timedelta(seconds=later))


def test_what_is_waited_for_is_told_while_it_is(tmp_path: Path) -> None:
    # Catches a wait that is cut at a sign of its own, or whose time stands still while the run does.
    told = progress(tmp_path, TIMED, STAGE, WAITING, later=5.0)
    assert told.waiting_for == "a=b seconds=9: to \\x1b[2J"
    assert told.waited_seconds is not None
    assert 15.0 <= told.waited_seconds < 60.0
    assert told.doing == "saving the weights"
    assert (told.seconds_left, told.left_text) == (20.0, "15 to 25 s left")


@pytest.mark.parametrize(
    ("logged", "later", "doing"),
    [
        ((), 1.0, "starting"),
        ((WAITING, STEP), 1.0, "training"),
        ((STAGE, WAITING), 120.0, "saving the weights"),
        ((WAITING, EVALUATED), 1.0, "evaluating: gsm8k 3 of 20"),
        ((STAGE, Event(name=events.RUN_INTERRUPT)), 1.0, "interrupted: finishing the steps in flight, then saving"),
    ],
)
def test_a_wait_that_is_over_is_told_no_more(
    tmp_path: Path, logged: tuple[Event, ...], later: float, doing: str
) -> None:
    # Catches a page that says "waiting for the session to open" beside growing curves.
    told = progress(tmp_path, *logged, later=later)
    assert (told.doing, told.waiting_for) == (doing, None)


@pytest.mark.parametrize("line", ["", "Traceback (most recent call last):", "2026-99-01 00:00:00,000 INFO x: a.b c=1"])
def test_other_lines_are_no_events(line: str) -> None:
    assert read_event(line) is None


def test_only_the_end_of_a_long_log_is_read(tmp_path: Path) -> None:
    # Catches a list of runs that reads gigabytes of logs.
    log = tmp_path / "runs" / "a" / "logs.log"
    make_run(log.parent)
    with log.open("wb") as file:
        file.truncate(1 << 40)
    (found,) = find_runs(tmp_path / "runs")
    assert progress_of(overview_of(found)).doing == "starting"
