"""Catches a refusal that the SDK retries for minutes, and one that shows a path of the server's."""

import errno
import os

import pytest

from cookhouse.engine.contract import DamagedError
from cookhouse.errors import InputError, ServiceError
from cookhouse.server.refusals import (
    BusyError,
    ForbiddenError,
    GoneError,
    StorageBusyError,
    StorageError,
    blame_of,
    message_of,
    status_of,
)
from cookhouse.server.sequencer.futures import Result


@pytest.mark.parametrize(
    ("error", "message", "blame"),
    [
        (InputError("what you gave"), "what you gave", "user"),
        (ServiceError("what we lack"), "what we lack", "server"),
        (
            DamagedError("/state/snapshots/1 cannot be read"),
            "weights are damaged on the service's side; its log has the details",
            "server",
        ),
        (
            OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/state/snapshots/1"),
            "the server failed with OSError: No space left on device; its log has the details",
            "server",
        ),
        (
            ValueError("too large"),
            "the server failed with ValueError: too large; its log has the details",
            "server",
        ),
    ],
)
def test_what_a_client_is_told(error: Exception, message: str, blame: str) -> None:
    assert (message_of(error), blame_of(error)) == (message, blame)


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (InputError(""), 400),
        (ForbiddenError(""), 403),
        (BusyError(""), 429),
        (StorageBusyError(""), 503),
        (StorageError(""), 400),
        (ServiceError(""), 500),
    ],
)
def test_how_a_request_is_refused(error: Exception, status: int) -> None:
    assert status_of(error) == status


def test_only_what_is_gone_is_asked_for_again() -> None:
    """Would catch a failed sample that the SDK draws again, for ever."""
    assert Result.of_error(GoneError("x")).status == 410
    assert Result.of_error(InputError("x")).status == 200
