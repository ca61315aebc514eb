"""What a run records of when, where and how it went; a run that is killed cannot look alive."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.waiting import next_line

from cookhouse.errors import InputError, ServiceError
from cookhouse.runs import FolderSpec, RunFolder, RunStatus, choose_folder, open_folder, read_history, record_failure
from cookhouse.runs.history.facts import usage_of
from cookhouse.telemetry import Event

ALIVE = """
import sys
from pathlib import Path
from cookhouse.runs import FolderSpec, choose_folder, open_folder

spec = FolderSpec(path=Path(sys.argv[1]), recipe="r", config={}, seed=0, behavior="raise", free_fields=())
folder = open_folder(spec, choose_folder(spec))
print("open", flush=True)
sys.stdin.read()
"""


def spec(path: Path, behavior: str = "raise", **others: Any) -> FolderSpec:
    return FolderSpec(path=path, recipe="r", config={}, seed=0, behavior=behavior, free_fields=(), **others)


def opened(path: Path, behavior: str = "raise", **others: Any) -> RunFolder:
    wanted = spec(path, behavior, **others)
    return open_folder(wanted, choose_folder(wanted))


def test_a_launch_tells_when_where_and_with_what(tmp_path: Path) -> None:
    before = datetime.now(UTC) - timedelta(milliseconds=1)
    folder = opened(tmp_path / "run", typed="mine.py:RECIPE", adapters="mine.py:make")
    folder.run_json.write(Event(name="run.start", metrics={"total_steps": 7.0}))
    folder.run_json.write(Event(name="run.service", text={"service": "at home"}))
    folder.run_json.write(Event(name="run.service", text={"service": "restored 1 models"}))  # no name of a service
    folder.end("success")
    folder.close()
    history = read_history(folder.path)
    (launch,) = history.launches
    assert before <= launch.started_at <= datetime.now(UTC)
    assert launch.ended_at is not None
    assert (launch.recipe, launch.adapters, launch.folder) == ("mine.py:RECIPE", "mine.py:make", str(Path.cwd()))
    assert (launch.total_steps, launch.service, launch.process_id) == (7, "at home", os.getpid())
    assert launch.machine is not None
    assert launch.machine.cores == len(os.sched_getaffinity(0))
    assert launch.machine.memory_bytes is not None
    assert launch.machine.memory_bytes > 2**28
    assert launch.packages["python"] == ".".join(map(str, sys.version_info[:3]))
    assert "torch" in launch.packages
    assert launch.revision == json.loads((folder.path / "config.json").read_text())["revision"]
    assert (history.status, history.error, history.is_running) == (RunStatus.FINISHED, None, False)


@pytest.mark.parametrize(
    ("status", "error", "state", "told"),
    [
        ("success", None, "finished", None),
        ("interrupted", KeyboardInterrupt(), "interrupted", None),
        ("errored", ServiceError("on\n  fire"), "failed", "on fire"),
        ("errored", KeyError(), "failed", "KeyError"),
        ("errored", ValueError("x" * 9000), "failed", "x" * 500),
    ],
)
def test_how_it_ended_is_told_in_a_line(
    status: Any, error: BaseException | None, state: str, told: str | None, tmp_path: Path
) -> None:
    folder = opened(tmp_path / "run")
    folder.end(status, error)
    folder.close()
    history = read_history(folder.path)
    assert (history.status, history.error) == (state, told)


def test_an_open_folder_is_running_and_nobody_else_may_have_it(tmp_path: Path) -> None:
    # Catches two runs that write to one folder, and one that deletes what another is writing.
    folder = opened(tmp_path / "run")
    assert read_history(folder.path).status is RunStatus.RUNNING
    before = {path.name: path.read_bytes() for path in folder.path.iterdir()}
    for behavior in ("raise", "resume", "delete"):
        with pytest.raises(InputError, match=r"a run is going on in .*run; wait for it to end, or choose another"):
            choose_folder(spec(folder.path, behavior))
    with pytest.raises(InputError, match="a run is going on"):  # one that came between the question and the answer
        open_folder(spec(folder.path, "delete"), choose_folder(spec(tmp_path / "other")))
    assert {path.name: path.read_bytes() for path in folder.path.iterdir()} == before
    folder.close()


def test_a_killed_run_is_interrupted_and_lasted_until_its_last_sign_of_life(tmp_path: Path) -> None:
    """Catches a state that is only written down: nobody is left to change it."""
    path = tmp_path / "run"
    process = subprocess.Popen(
        [sys.executable, "-c", ALIVE, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert next_line(process) == "open\n"
    assert read_history(path).status is RunStatus.RUNNING
    process.kill()
    process.communicate()
    started = read_history(path).started_at.timestamp()
    for file in path.iterdir():
        os.utime(file, (started, started + 30))
    (path / "metrics.jsonl").write_text("")
    os.utime(path / "metrics.jsonl", (started, started + 90))
    history = read_history(path)
    assert history.status is RunStatus.INTERRUPTED
    assert history.error is not None
    assert "killed" in history.error
    assert history.seconds == pytest.approx(90, abs=0.01)

    again = opened(path, "resume")  # what it had done counts, and the time since does not
    again.end("success")
    again.close()
    first, second = read_history(path).launches
    assert (first.status, second.status) == (RunStatus.INTERRUPTED, RunStatus.FINISHED)
    assert first.seconds == pytest.approx(90, abs=0.01)
    assert read_history(path).seconds == pytest.approx(90 + second.seconds, abs=0.01)


def test_what_could_not_tell_its_own_end_has_it_told(tmp_path: Path) -> None:
    """The server died, and the run was cancelled: that is no interrupt by a person."""
    folder = opened(tmp_path / "run")
    folder.end("interrupted")
    folder.close()
    record_failure(folder.path, ServiceError("the embedded server died"))
    record_failure(folder.path, ServiceError("and this came of it"))
    history = read_history(folder.path)
    assert (history.status, history.error) == (RunStatus.FAILED, "the embedded server died")
    record_failure(tmp_path / "nowhere", ServiceError("before it had a folder"))
    assert not (tmp_path / "nowhere").exists()


def test_a_folder_without_the_file_has_no_history(tmp_path: Path) -> None:
    """Would catch a start and an end that nobody recorded, made up from the times of other files."""
    (tmp_path / "result.json").write_text("{}")
    (tmp_path / "logs.log").write_text("2026-01-02 03:04:05,678 INFO x: run.start\n")
    with pytest.raises(InputError, match=r"there is no run\.json in .*, so no run was started there"):
        read_history(tmp_path)


@pytest.mark.parametrize(
    "text",
    [
        "[",
        "[]",
        '{"launches": 3}',
        '{"launches": [{}]}',
        '{"launches": [{"started_at": 3}]}',
        '{"launches": [{"started_at": "2026-01-02T03:04:05+00:00", "status": "asleep"}]}',
        '{"launches": [{"started_at": "2026-01-02T03:04:05+00:00", "machine": {"host": 1}}]}',
        '{"launches": [{"started_at": "2026-01-02T03:04:05+00:00", "error": ["x"]}]}',
    ],
)
def test_a_file_that_holds_no_launches_is_named(text: str, tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text(text)
    with pytest.raises(InputError, match=r"run\.json does not hold the launches of a run .*; remove it"):
        read_history(tmp_path)


def test_what_a_later_version_adds_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text('{"launches": [{"started_at": "2026-01-02T03:04:05+00:00", "mood": "good"}]}')
    assert read_history(tmp_path).started_at == datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def test_usage_says_which_launches_it_leaves_out(tmp_path: Path) -> None:
    # Catches the figure of the last launch read as that of the run, when the one before it was killed.
    path = tmp_path / "run"
    killed = opened(path)
    killed.close()  # as a process that dies: it reports nothing
    folder = opened(path, "resume")
    folder.run_json.write(Event(name="run.usage", metrics={"trained_tokens": 1200.0}))
    folder.end("success")
    folder.close()
    history = read_history(path)
    assert history.usage is not None
    assert usage_of(history.usage, history) == (
        "1,200 tokens trained (of the last launch alone; one that was killed reports none)"
    )
    whole = replace(history, launches=history.launches[1:])
    assert usage_of(history.usage, whole) == "1,200 tokens trained"
