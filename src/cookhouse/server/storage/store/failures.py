"""Failures of a database, as clients and operators read them: no SQL, and the way out."""

import logging

import sqlalchemy as sa

from cookhouse.server.refusals import StorageBusyError, StorageError

_log = logging.getLogger(__name__)


def is_cut(error: StorageError) -> bool:
    """True if the connection was lost, so that nobody knows what became of its transaction."""
    cause = error.__cause__
    return isinstance(cause, sa.exc.DBAPIError) and cause.connection_invalidated


def damaged(what: object, way_out: str) -> StorageError:
    """`way_out`: what its operator has to do."""
    _log.error("the database is damaged: %s", what)
    return StorageError(f"the service's database is damaged; tell its operator, who has to {way_out}")


def locked(seconds: float) -> StorageBusyError:
    return StorageBusyError(f"the service's database was locked by another program for {seconds:g} s; try again")


def exhausted() -> StorageBusyError:
    return StorageBusyError("all of the service's connections to its database are in use; try again")


def unreachable(what: object) -> StorageBusyError:
    _log.warning("the database cannot be reached: %s", what)
    return StorageBusyError("the service's database cannot be reached; try again")


def full() -> StorageBusyError:
    return StorageBusyError(
        "the service's database cannot be written: the disk is full; free space on it, for example by deleting "
        "checkpoints, and try again"
    )


def failing(reason: str) -> StorageBusyError:
    """A disk that has no room may say so in many ways."""
    return StorageBusyError(
        f"the service's database cannot be read or written: {reason}; its disk is full or fails. Free space on it, for "
        "example by deleting checkpoints, and try again"
    )


def unusable(reason: str) -> StorageError:
    return StorageError(
        f"the service's database cannot be used: {reason}; free space on its disk, for example by deleting "
        "checkpoints, and try again"
    )
