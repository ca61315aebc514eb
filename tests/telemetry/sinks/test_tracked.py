"""What a tool's run is given, and what the run directory remembers of it."""

from pathlib import Path

import pytest

from cookhouse.telemetry import Event, MetricsRow, Values
from cookhouse.telemetry.sinks.tracked import TrackerRun, TrackerSink, read_tracker_run, run_name


class _Tracker:
    def __init__(self, run: TrackerRun, settling_seconds: float) -> None:
        self.run = run
        self.settling_seconds = settling_seconds
        self.steps: list[int] = []
        self.status = ""

    def log(self, step: int, values: Values) -> None:
        assert values == {"a": 1.0}
        self.steps.append(step)

    def finish(self, status: str) -> None:
        self.status = status


def _fed(folder: Path, *steps: int, settling_seconds: float = 3600.0) -> tuple[TrackerSink, _Tracker]:
    run = read_tracker_run(folder, "tool") or TrackerRun(id="1", name="n", project="p")
    tracker = _Tracker(run, settling_seconds)
    sink = TrackerSink("tool", folder, tracker)
    for step in steps:
        sink.write(MetricsRow(step=step, metrics={"a": 1.0}))
    return sink, tracker


def test_rows_that_a_killed_process_may_have_lost_are_given_again(tmp_path: Path) -> None:
    # Catches a row missing in the tool: it was given there, and not sent before the process was killed.
    _fed(tmp_path, 0, 1, 2)
    kept = read_tracker_run(tmp_path, "tool")
    assert kept is not None
    assert (kept.id, kept.step) == ("1", -1)
    _, again = _fed(tmp_path, 0, 1, 2, 3)
    assert again.steps == [0, 1, 2, 3]


@pytest.mark.parametrize("is_closed", [True, False])
def test_rows_that_the_tool_has_are_not_given_again(tmp_path: Path, is_closed: bool) -> None:
    sink, _ = _fed(tmp_path, 0, 1, 2, settling_seconds=3600.0 if is_closed else 0.0)
    if is_closed:
        sink.close()
    resumed, again = _fed(tmp_path, 1, 2, 3)
    assert again.steps == [3]
    resumed.close()
    kept = read_tracker_run(tmp_path, "tool")
    assert kept is not None
    assert kept.step == 3


def test_a_tool_that_cannot_finish_may_lack_its_last_rows(tmp_path: Path) -> None:
    sink, tracker = _fed(tmp_path, 0)

    def finish(status: str) -> None:
        raise OSError(status)

    tracker.finish = finish  # type: ignore[method-assign]
    with pytest.raises(OSError, match="errored"):
        sink.close()
    assert _fed(tmp_path, 0)[1].steps == [0]


@pytest.mark.parametrize("status", ["success", "interrupted", "errored"])
def test_the_tool_is_told_how_the_run_ended(tmp_path: Path, status: str) -> None:
    sink, tracker = _fed(tmp_path)
    sink.write(Event(name="run.end", text={"status": status}))
    sink.close()
    assert tracker.status == status


def test_a_run_without_a_name_is_called_as_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Catches runs of no name at all, of people who stand in the folder of the run.
    (tmp_path / "mine").mkdir()
    monkeypatch.chdir(tmp_path / "mine")
    assert [run_name(folder, {"wandb_name": None}) for folder in (Path(), tmp_path / "mine")] == ["mine", "mine"]
    assert run_name(Path(), {"wandb_name": "theirs"}) == "theirs"
