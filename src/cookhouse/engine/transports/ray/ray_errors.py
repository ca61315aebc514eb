"""What Ray raises, as we say and tell it."""

from ray.exceptions import RayError, RayTaskError

_MAX_SAID = 300


def said(error: Exception) -> str:
    """An error in one line: of what Ray says the cause, where it names one."""
    text = " ".join(str(error).split())
    if not isinstance(error, RayError):
        return f"{type(error).__name__}: {text}"[:_MAX_SAID]
    _, found, cause = text.partition("The actor is dead because ")
    return (cause if found else text)[:_MAX_SAID] or type(error).__name__


def cause_of(error: Exception) -> BaseException:
    """What an actor raised, without what Ray says of it."""
    return error.cause if isinstance(error, RayTaskError) else error


def is_loss(error: Exception) -> bool:
    """Whether an actor is out of reach, rather than that it raised something."""
    return isinstance(error, RayError) and not isinstance(error, RayTaskError)
