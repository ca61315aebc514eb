"""logs.log: everything that is logged during a run, and every event of it, as text."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cookhouse.printable import printable
from cookhouse.telemetry.record import Event, Record

logger = logging.getLogger(__name__)

# httpx logs each poll at INFO: thousands of lines that tell nothing.
_LOGGERS = {"cookhouse": logging.INFO, "tinker": logging.WARNING}


@contextmanager
def log_file(path: Path) -> Iterator[None]:
    """Append what cookhouse and the SDK log to a file while the body runs: at the level that their loggers have, if
    that is finer than the file's own.
    """
    handler = logging.FileHandler(path, encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    levels = {name: logging.getLogger(name).level for name in _LOGGERS}
    for name, level in _LOGGERS.items():
        logging.getLogger(name).addHandler(handler)
        logging.getLogger(name).setLevel(min(level, levels[name] or level))
    try:
        yield
    finally:
        for name, level in levels.items():
            logging.getLogger(name).removeHandler(handler)
            logging.getLogger(name).setLevel(level)
        handler.close()


class LogSink:
    """Logs each event as one line."""

    def write(self, record: Record) -> None:
        if isinstance(record, Event):
            numbers = {key: f"{value:.6g}" for key, value in record.metrics.items()}
            step = {} if record.step is None else {"step": str(record.step)}
            fields = " ".join(f"{key}={value}" for key, value in (step | dict(record.text) | numbers).items())
            logger.info("%s %s", record.name, printable(fields))

    def close(self) -> None:
        """Nothing is held; the log file belongs to `log_file`."""
