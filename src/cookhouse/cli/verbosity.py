"""Log levels: one for the terminal, which logs.log follows where it is finer than its own."""

import logging
import os
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, TypeAlias

import typer

from cookhouse.errors import UnknownNameError, printable

LEVEL_VARIABLE = "COOKHOUSE_LOG"
_LOGGERS = ("cookhouse", "tinker")
_GIVING_UP = "tinker.lib.retry_handler"
"""Logs why it raises."""
_OF_RETRIES = ("retry", "thrown while requesting")


class Level(StrEnum):
    """Lowest level that is logged."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


def show_logs(environ: Mapping[str, str] = os.environ) -> None:
    """Log to stderr in lines: warnings and errors, unless the environment says otherwise.

    What is logged with an exception, or of a request that the SDK gives up, is shown as the error it becomes, unless
    more was asked for.

    Raises:
        UnknownNameError: the environment names no level.
    """
    handler = _TellingHandler()
    handler.setFormatter(_LineFormatter())
    handler.addFilter(_RetriesOnce())
    handler.addFilter(lambda record: not _becomes_an_error(record) or handler.level < logging.WARNING)
    logging.basicConfig(handlers=[handler])
    previous = logging.getLoggerClass()
    logging.setLoggerClass(_WithoutHandlers)
    logging.getLogger("huggingface_hub")  # it would write to stderr itself, and hand on what it wrote
    logging.setLoggerClass(previous)
    handler.setLevel(logging.WARNING)
    name = environ.get(LEVEL_VARIABLE, "").strip().lower()
    if name:
        levels = {level.value: level for level in Level}
        if name not in levels:
            raise UnknownNameError(LEVEL_VARIABLE, name, levels)
        set_level(levels[name])


def set_level(level: Level) -> None:
    """Show what is logged at a level and above it, by cookhouse and the SDK; of other libraries only warnings."""
    number = logging.getLevelNamesMapping()[level.name]
    for handler in logging.getLogger().handlers:
        if isinstance(handler, _TellingHandler):
            handler.setLevel(number)
    for name in _LOGGERS:
        logging.getLogger(name).setLevel(number)


class _WithoutHandlers(logging.Logger):
    """Of a library: what it logs is shown by the root's handlers, and by none of its own."""

    def addHandler(self, hdlr: logging.Handler) -> None:  # noqa: N802  as the base class has it
        del hdlr


class _RetriesOnce(logging.Filter):
    """Of what a library says of its retries, the first: it says the same at each."""

    def __init__(self) -> None:
        super().__init__()
        self._told: set[tuple[str, int]] = set()

    def filter(self, record: logging.LogRecord) -> bool:
        said = record.getMessage().lower()
        if record.name.split(".")[0] in _LOGGERS or not any(words in said for words in _OF_RETRIES):
            return True
        place = (record.pathname, record.lineno)
        is_new, self._told = place not in self._told, self._told | {place}
        return is_new


def is_verbose() -> bool:
    """True if more than warnings was asked for."""
    return logging.getLogger(_LOGGERS[0]).isEnabledFor(logging.INFO)


def _becomes_an_error(record: logging.LogRecord) -> bool:
    return record.exc_info is not None or (record.name == _GIVING_UP and record.levelno >= logging.ERROR)


class _TellingHandler(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        from cookhouse.telemetry import tell  # loads rich, for which nobody waits who asks for help

        tell(self.format(record))


class _LineFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return printable(f"{record.levelname.lower()}: {super().format(record)}", keep="\n")


def _choose(level: Any) -> Any:
    if level is not None:
        set_level(Level(level))
    return level


def _choose_verbose(is_wanted: bool) -> bool:
    if is_wanted:
        set_level(Level.INFO)
    return is_wanted


VERBOSE_OPTION = typer.Option(
    "--verbose",
    "-v",
    help="Show every note, each event and what is logged, as --log-level info does.",
    callback=_choose_verbose,
)
LEVEL_OPTION = typer.Option(
    "--log-level",
    help="What the terminal shows of what is logged; debug goes to logs.log of a run as well. "
    f"{LEVEL_VARIABLE} sets it, too.",
    callback=_choose,
    show_default="warning",
    case_sensitive=False,
)
Verbose: TypeAlias = Annotated[bool, VERBOSE_OPTION]
LogLevel: TypeAlias = Annotated[Level | None, LEVEL_OPTION]
