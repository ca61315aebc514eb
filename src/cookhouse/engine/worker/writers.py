"""Threads that write files, beside the engine's."""

import os
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor

MakeWriter = Callable[[str], Executor]


def thread_writer(name: str) -> ThreadPoolExecutor:
    """One thread that writes files in order."""
    return ThreadPoolExecutor(max_workers=1, thread_name_prefix=name, initializer=_use_any_core)


def _use_any_core() -> None:
    """Free this thread of the core of the one that started it: the engine's is bound to its own."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, os.sched_getaffinity(os.getpid()))
