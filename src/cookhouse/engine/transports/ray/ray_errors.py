"""Errors of Ray as failures of the contract."""

from ray.exceptions import (
    LocalRayletDiedError,
    NodeDiedError,
    ObjectLostError,
    ObjectStoreFullError,
    OutOfDiskError,
    RayActorError,
    RayError,
    RaySystemError,
    RayTaskError,
    WorkerCrashedError,
)

from cookhouse.engine.contract import Failure

NO_ROOM = ObjectStoreFullError, OutOfDiskError
"""Ray's store, and the disk behind it: neither the actor's end nor a bug."""
_LOSSES = RayActorError, NodeDiedError, LocalRayletDiedError, WorkerCrashedError, ObjectLostError, RaySystemError
_MAX_SAID = 300


def said(error: Exception) -> str:
    """An error in one line: of what Ray says the cause, where it names one."""
    text = " ".join(str(error).split())
    if not isinstance(error, RayError):
        return f"{type(error).__name__}: {text}"[:_MAX_SAID]
    _, found, cause = text.partition("The actor is dead because ")
    return (cause if found else text)[:_MAX_SAID] or type(error).__name__


def is_loss(error: Exception) -> bool:
    """True if an actor or its node is out of reach, rather than that it raised something."""
    return isinstance(error, _LOSSES) and not isinstance(error, RayTaskError)


def failure_of(error: Exception) -> Failure:
    """Failure of a command which raised an error, here or in an actor."""
    cause = error.cause if isinstance(error, RayTaskError) else error
    failure = Failure.of(cause)
    if isinstance(cause, NO_ROOM):
        return Failure(blame="server", kind="disk", message=said(cause), details=failure.details)
    return failure
