"""What a server answers instead of a result, and the one table that says how.

An accepted request that fails is not an HTTP error: its future carries a message and who is to blame.

    raised before a request is accepted     status    the SDK then
    ───────────────────────────────────     ──────    ────────────
    UnauthorizedError                       401       raises at once
    NotFoundError                           404       raises at once
    GoneError                               410       raises; a sample is submitted again, a heartbeat stops
    TooLargeError                           413       raises at once
    BusyError                               429       waits and sends again
    any other InputError                    400       raises at once
    anything else                           500       retries for minutes, so it must be a bug of ours

409 and 402 are never sent: the SDK retries them for minutes and for an hour.
"""

from typing import Literal

from cookhouse.errors import InputError, ServiceError

Blame = Literal["user", "server"]


class UnauthorizedError(InputError):
    """The request has no key, or one that this server does not know."""


class NotFoundError(InputError):
    """What the request names does not exist, or belongs to someone else."""


class GoneError(InputError):
    """What the request names existed, and has ended."""


class TooLargeError(InputError):
    """The body is over the size limit."""


class BusyError(InputError):
    """A queue is full; the same request will be accepted later."""


_STATUSES: tuple[tuple[type[Exception], int], ...] = (
    (UnauthorizedError, 401),
    (NotFoundError, 404),
    (GoneError, 410),
    (TooLargeError, 413),
    (BusyError, 429),
    (InputError, 400),
)


def status_of(error: Exception) -> int:
    return next((status for kind, status in _STATUSES if isinstance(error, kind)), 500)


def blame_of(error: BaseException) -> Blame:
    return "user" if isinstance(error, InputError) else "server"


def message_of(error: BaseException) -> str:
    """What to tell the client: our own exceptions speak for themselves, others are named."""
    if isinstance(error, InputError | ServiceError):
        return str(error)
    return f"the server failed with {type(error).__name__}: {error}; its log has the details"
