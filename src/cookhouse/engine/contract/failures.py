"""Failures as data: who is to blame, of what kind it is, and what to say. No exception crosses to a worker or back."""

import traceback
from dataclasses import dataclass
from typing import Literal

from cookhouse.errors import InputError, ServiceError

Blame = Literal["user", "server"]
Kind = Literal["input", "canceled", "memory", "damaged", "disk", "service", "bug"]


class DamagedError(InputError):
    """The files of a checkpoint cannot be read, or are not those that were written."""


class CanceledError(InputError):
    """The command was canceled by `Forget` before it was done."""


class NoMemoryError(InputError):
    """The request does not fit into the memory that this worker has left; another may have room."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Why a command failed. `kind` disk: files cannot be read or written; service: something else that is missing."""

    blame: Blame
    kind: Kind
    message: str
    """What was wrong, what is allowed, and the way out; of a disk what the system says, of a bug the exception's class
    and text."""
    details: str = ""
    """For the log: the traceback, where the worker is to blame."""

    @classmethod
    def of(cls, error: BaseException) -> "Failure":
        """The failure that an exception is."""
        details = "".join(traceback.format_exception(error))
        if isinstance(error, CanceledError):
            return cls(blame="user", kind="canceled", message=str(error))
        if isinstance(error, NoMemoryError):
            return cls(blame="user", kind="memory", message=str(error))
        if isinstance(error, DamagedError):
            return cls(blame="server", kind="damaged", message=str(error), details=details)
        if isinstance(error, InputError):
            return cls(blame="user", kind="input", message=str(error))
        if isinstance(error, ServiceError):
            return cls(blame="server", kind="service", message=str(error), details=details)
        if isinstance(error, OSError):
            return cls(blame="server", kind="disk", message=error.strerror or str(error), details=details)
        return cls(blame="server", kind="bug", message=f"{type(error).__name__}: {error}", details=details)
