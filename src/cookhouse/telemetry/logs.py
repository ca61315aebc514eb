"""logs.log: everything that is logged during a run, and every event of it, as text."""

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

from cookhouse.errors import printable
from cookhouse.telemetry.record import Event, Record

logger = logging.getLogger(__name__)

# httpx logs each poll at INFO: thousands of lines of no use.
_LOGGERS = {"cookhouse": logging.INFO, "tinker": logging.WARNING}
_OF: ContextVar[Path | None] = ContextVar("run", default=None)
_lock = threading.Lock()
_open: list[logging.Handler] = []
_levels: dict[str, int] = {}
"""Of the loggers, before the first file was opened."""


@contextmanager
def logs_of(folder: Path) -> Iterator[None]:
    """Assign logs of the body, and of the tasks and threads that it starts, to the run in this folder: they go to the
    log files there and in the folders above, not to those of other runs. Logs of no known run go to all of them.
    """
    token = _OF.set(folder.absolute())
    try:
        yield
    finally:
        _OF.reset(token)


@contextmanager
def log_file(path: Path) -> Iterator[None]:
    """Append what cookhouse and the SDK log to a file while the body runs: at the level that their loggers have, if
    that is finer than the file's own. Several may be open, and closed in any order.
    """
    folder = path.absolute().parent
    handler = logging.FileHandler(path, encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    handler.addFilter(lambda _: (of := _OF.get()) is None or folder in (of, *of.parents))
    _add(handler)
    try:
        yield
    finally:
        _remove(handler)
        handler.close()


def _add(handler: logging.Handler) -> None:
    with _lock:
        for name, level in _LOGGERS.items():
            log = logging.getLogger(name)
            if not _open:
                _levels[name] = log.level
                log.setLevel(min(level, log.level or level))
            log.addHandler(handler)
        _open.append(handler)


def _remove(handler: logging.Handler) -> None:
    with _lock:
        _open.remove(handler)
        for name in _LOGGERS:
            logging.getLogger(name).removeHandler(handler)
            if not _open:
                logging.getLogger(name).setLevel(_levels[name])


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
