"""Examples on disk: bounded, and cut where a resumed run goes on."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.algorithms.base.kit import answered, datum

from cookhouse.algorithms.base.example_log import ExampleLog
from cookhouse.errors import InputError
from cookhouse.training.loop.objective import answered_logprobs


def log_in(folder: Path, **settings: Any) -> ExampleLog:
    settings = {"num_shown": 2, "first_step": 0, **settings}
    return ExampleLog(folder, logprobs=answered_logprobs, **settings)


def steps_in(folder: Path) -> list[int]:
    return sorted(int(path.stem) for path in folder.iterdir())


STEP = [answered([datum([1, 2, index]) for index in range(4)])]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "examples"


def test_each_step_has_a_file_with_a_line_for_each_datum(folder: Path) -> None:
    log_in(folder)(12, STEP)
    lines = (folder / "000012.jsonl").read_text().splitlines()
    assert [json.loads(line)["number"] for line in lines] == [0, 2]


def test_none_are_kept_where_none_are_asked_for(folder: Path) -> None:
    log_in(folder, num_shown=0)(0, STEP)
    log_in(folder)(0, [])
    assert not folder.exists()


def test_a_resumed_run_removes_the_examples_of_steps_that_it_takes_again(folder: Path) -> None:
    """Catches examples of a run that broke off beside those of the one that went on."""
    log = log_in(folder)
    for step in range(4):
        log(step, STEP)
    log_in(folder, first_step=2, num_shown=0)
    assert steps_in(folder) == [0, 1]


def test_beyond_the_bound_every_second_step_goes_and_the_log_says_so(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Catches a long run that fills the disk, and one that keeps its first steps alone."""
    caplog.set_level("INFO")
    log = log_in(folder)
    log(0, STEP)
    size = (folder / "000000.jsonl").stat().st_size
    log = log_in(folder, max_run_bytes=4 * size)
    for step in range(21):
        log(step, STEP)
    assert steps_in(folder) == [0, 8, 16]
    assert [record.args[-1] for record in caplog.records if isinstance(record.args, tuple)] == [2, 4, 8]
    # A resumed run goes on by the sizes that it finds.
    log = log_in(folder, first_step=21, max_run_bytes=4 * size)
    for step in range(21, 26):
        log(step, STEP)
    assert len(steps_in(folder)) <= 4


def test_a_step_is_bounded_too(folder: Path) -> None:
    log_in(folder, num_shown=4)(0, STEP)
    size = (folder / "000000.jsonl").stat().st_size
    log_in(folder, num_shown=4, max_step_bytes=size - 1)(1, STEP)
    assert len((folder / "000001.jsonl").read_text().splitlines()) == 3


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"cannot write .*examples"):
        log_in(tmp_path / "deleted" / "examples")(0, STEP)


def test_what_others_put_beside_them_ends_no_run(folder: Path) -> None:
    """Catches a run that cannot be resumed since somebody copied an example."""
    log_in(folder)(0, STEP)
    (folder / "000000 (copy).jsonl").write_text("{}")
    (folder / "000001.jsonl").mkdir()
    log_in(folder, first_step=0)
    assert sorted(path.name for path in folder.iterdir()) == ["000000 (copy).jsonl", "000001.jsonl"]
