"""Refusals: errors that a server answers with instead of a result, and the one table that says how.

An accepted request that fails is not an HTTP error: its future carries a message and who is to blame.

    raised before a request is accepted     status    the SDK then
    ───────────────────────────────────     ──────    ────────────
    UnauthorizedError                       401       raises at once
    ForbiddenError                          403       raises at once
    NotFoundError                           404       raises at once
    GoneError                               410       raises; a sample is submitted again, a heartbeat stops
    TooLargeError                           413       raises at once
    WrongHostError                          421       (a page of a browser's: says why)
    BusyError                               429       waits and sends again
    any other InputError                    400       raises at once
    StorageBusyError, LeaseLostError        503       retries for minutes
    any other StorageError                  400       raises at once, which it does with no 5xx
    anything else                           500       retries for minutes, so it must be a bug of ours

    AsHostedError (`serve --as-hosted`)     its own    as at the hosted service

409 and 402 are never sent else: the SDK retries them for minutes and for an hour.
"""

from typing import Literal

from cookhouse.engine.contract import CanceledError, DamagedError, Failure, NoMemoryError
from cookhouse.errors import CookhouseError, InputError, ServiceError

Blame = Literal["user", "server"]


class UnauthorizedError(InputError):
    """The request has no key, or one that this server does not know."""


class ForbiddenError(InputError):
    """The request's key may not ask for this."""


class NotFoundError(InputError):
    """The object that the request names does not exist, or belongs to someone else."""


class ForeignError(NotFoundError):
    """It belongs to another tenant. Clients cannot tell it from one that never was, unless served as hosted."""


class GoneError(InputError):
    """The object that the request names existed, and has ended."""


class NoSessionError(GoneError):
    """The session has ended, never was, or belongs to another tenant."""


class TooLargeError(InputError):
    """The body is over the size limit."""


class WrongHostError(InputError):
    """The request is for a host that this server is not."""


class BusyError(InputError):
    """A queue is full; the same request will be accepted later."""


class AsHostedError(InputError):
    """A refusal of the hosted service's, with its words and its status."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


class StorageError(ServiceError):
    """The service's disk is full, or fails; nothing has changed."""


class StorageBusyError(StorageError):
    """The service's database is locked, out of reach or without room; nothing has changed, and the same request may
    succeed later.
    """


class LeaseLostError(StorageError):
    """The server holds its sessions no more: another has taken them over, and answers for them."""


class DiskError(StorageError):
    """Files of the engine's cannot be read or written; `reason` is what the system says."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"the service's disk failed: {reason}; its log has the details")
        self.reason = reason


class LostError(ServiceError):
    """A worker of the engine ended, and with it what was asked of it."""


_STATUSES: tuple[tuple[type[Exception], int], ...] = (
    (UnauthorizedError, 401),
    (ForbiddenError, 403),
    (NotFoundError, 404),
    (GoneError, 410),
    (TooLargeError, 413),
    (WrongHostError, 421),
    (BusyError, 429),
    (InputError, 400),
    (StorageBusyError, 503),
    (LeaseLostError, 503),
    (StorageError, 400),
)


def status_of(error: Exception) -> int:
    if isinstance(error, AsHostedError):
        return error.status
    return next((status for kind, status in _STATUSES if isinstance(error, kind)), 500)


def blame_of(error: BaseException) -> Blame:
    """A caller names checkpoints, never their files: damage of those is the service's."""
    return "user" if isinstance(error, InputError) and not isinstance(error, DamagedError) else "server"


def message_of(error: BaseException) -> str:
    """The client's message: our own exceptions speak for themselves, others are named. No path of the server's."""
    if isinstance(error, DamagedError):
        return "weights are damaged on the service's side; its log has the details"
    if isinstance(error, InputError | ServiceError):
        return str(error)
    text = (isinstance(error, OSError) and error.strerror) or str(error)
    return f"the server failed with {type(error).__name__}: {text}; its log has the details"


def error_of(failure: Failure) -> CookhouseError:
    """Exception for a worker's report of a command that failed; a bug is named as `message_of` names others."""
    match failure.kind:
        case "input":
            return InputError(failure.message)
        case "canceled":
            return CanceledError(failure.message)
        case "memory":
            return NoMemoryError(failure.message)
        case "damaged":
            return DamagedError(failure.message)
        case "disk":
            return DiskError(failure.message)
        case "service":
            return ServiceError(failure.message)
        case "bug":
            return ServiceError(f"the server failed with {failure.message}; its log has the details")
