import asyncio
import logging
from contextlib import ExitStack
from pathlib import Path

import pytest

from cookhouse.telemetry import Event, LogSink, log_file, logs_of


def test_log_file_takes_events_and_gives_the_loggers_back(tmp_path: Path) -> None:
    cookhouse = logging.getLogger("cookhouse")
    before = (cookhouse.level, list(cookhouse.handlers))
    with log_file(tmp_path / "logs.log"):
        LogSink().write(Event(name="training.step", step=3, metrics={"train/loss": 0.5}, text={"why": "x"}))
    LogSink().write(Event(name="too.late"))
    assert (tmp_path / "logs.log").read_text().endswith("training.step step=3 why=x train/loss=0.5\n")
    assert (cookhouse.level, list(cookhouse.handlers)) == before


def test_the_file_has_what_is_finer_where_that_was_asked_for(tmp_path: Path) -> None:
    logger = logging.getLogger("cookhouse")
    before = logger.level
    try:
        for level, expected in ((logging.ERROR, ["info"]), (logging.DEBUG, ["debug", "info"])):
            logger.setLevel(level)
            path = tmp_path / f"{level}.log"
            with log_file(path):
                logger.debug("debug")
                logger.info("info")
            assert [line.split(": ")[-1] for line in path.read_text().splitlines()] == expected
            assert logger.level == level
    finally:
        logger.setLevel(before)


@pytest.mark.anyio
async def test_runs_side_by_side_have_their_own_lines(tmp_path: Path) -> None:
    """Catches lines of a run in the file of the one beside it, a whole that lacks those of its parts, and the first
    that ends taking the level from the others.
    """
    logger = logging.getLogger("cookhouse")
    before = logger.level
    first_is_over = asyncio.Event()

    async def run(name: str) -> None:
        folder = tmp_path / name
        folder.mkdir()
        with logs_of(folder), log_file(folder / "logs.log"):
            await asyncio.sleep(0)
            await asyncio.to_thread(logger.info, "in a thread of %s", name)
            if name == "b":
                await first_is_over.wait()
            logger.info("end of %s", name)
        first_is_over.set()

    with ExitStack() as stack:
        stack.enter_context(logs_of(tmp_path))
        stack.enter_context(log_file(tmp_path / "logs.log"))
        await asyncio.gather(run("a"), run("b"))
        stack.pop_all().close()
    logger.warning("too late")

    def lines(file: Path) -> list[str]:
        return [line.split(": ", 1)[1] for line in file.read_text().splitlines()]

    for name in ("a", "b"):
        assert lines(tmp_path / name / "logs.log") == [f"in a thread of {name}", f"end of {name}"]
    assert sorted(lines(tmp_path / "logs.log")) == [
        "end of a",
        "end of b",
        "in a thread of a",
        "in a thread of b",
    ]
    assert logger.level == before


def test_what_no_run_is_known_of_is_in_every_file(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    first, second = tmp_path / "a/logs.log", tmp_path / "b/logs.log"
    with log_file(first), log_file(second):
        logging.getLogger("tinker").warning("from a thread of the SDK")
    assert all(path.read_text().endswith("from a thread of the SDK\n") for path in (first, second))
