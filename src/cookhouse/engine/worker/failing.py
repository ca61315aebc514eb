"""Failure of a command: an event for whoever waits, and a log line where the worker is to blame."""

import logging

from cookhouse.engine.contract import CanceledError, Failed, Failure

_log = logging.getLogger(__name__)


def failed(command_id: str, error: Exception) -> Failed:
    """The answer to a command that raised an error."""
    failure = Failure.of(error)
    if failure.blame == "server" and failure.kind != "service":
        _log.error("the engine failed", exc_info=error)
    return Failed(command_id=command_id, failure=failure)


def canceled(command_id: str) -> Failed:
    """The answer to a command that a `Forget` canceled."""
    return failed(command_id, CanceledError(f"{command_id} was canceled"))
