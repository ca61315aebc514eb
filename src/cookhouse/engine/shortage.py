"""A shortage of memory, as torch, its allocators, oneDNN and the system report it; and its error message."""

import torch

from cookhouse.engine.host_memory import show_bytes
from cookhouse.engine.memory import free_bytes
from cookhouse.errors import InputError

_KINDS = (torch.OutOfMemoryError, MemoryError)
_SIGNS = (
    "can't allocate memory",  # torch's allocator of the host
    "not enough memory",  # the same, in other libraries
    "could not create a primitive",  # oneDNN, which allocates outside of torch
    "could not create a memory",
    "std::bad_alloc",
    "cannot allocate memory",  # the system: ENOMEM
    "alloc_failed",  # cuBLAS, cuDNN
    "out of memory",
)
"""In lower case. These libraries have no class of their own for it."""


class ShortageError(InputError):
    """Memory does not suffice for a computation."""


def is_shortage(error: BaseException) -> bool:
    """True where memory ran out, by class or by text."""
    if isinstance(error, (*_KINDS, ShortageError)):
        return True
    return isinstance(error, RuntimeError | OSError) and any(sign in str(error).lower() for sign in _SIGNS)


def explained(error: Exception, what: str, device: torch.device, way_out: str) -> Exception:
    """A shortage in words, with figures; any other error as it is. Call it when what failed has been let go of."""
    if not is_shortage(error) or isinstance(error, InputError):
        return error
    first = (str(error).strip().splitlines() or [type(error).__name__])[0][:120]
    shortage = ShortageError(
        f"memory ran out in {what}, and {show_bytes(free_bytes(device))} are free now; {way_out} ({first})"
    )
    shortage.__cause__ = error
    return shortage
