"""The C library's heap: what it does with memory that has been freed. Where it is not glibc's, nothing is changed.

See mallopt(3) and malloc_trim(3).
"""

import ctypes
import functools
from typing import Any

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_MMAP_BYTES = 2**25
"""The most that it can be: what is larger is always given back at once."""
_TRIM_BYTES = 2**31 - 1
"""The most that can be named."""


def keep_freed() -> None:
    """Keep what is freed for what is allocated next, from now on and in the whole process.

    By default large pieces go back to the system whenever they are freed. A pass would take its memory anew each time,
    page by page, and the system sets each page to zero.
    """
    library = _library()
    if library is not None:
        library.mallopt(_M_MMAP_THRESHOLD, _MMAP_BYTES)
        library.mallopt(_M_TRIM_THRESHOLD, _TRIM_BYTES)


def give_back() -> None:
    """Let the system have what is kept and not used."""
    library = _library()
    if library is not None:
        library.malloc_trim(0)


@functools.cache
def _library() -> Any | None:
    library = ctypes.CDLL(None)
    return library if hasattr(library, "mallopt") and hasattr(library, "malloc_trim") else None
