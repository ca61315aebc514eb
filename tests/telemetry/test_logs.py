import logging
from pathlib import Path

from cookhouse.telemetry import Event, LogSink, log_file


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
