"""Ways in which a store cannot be written: each as a block, during which it cannot be."""

import resource
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path

Unwritable = Callable[[Path], AbstractContextManager[None]]
"""Of a state folder."""


@contextmanager
def full_disk(_state_dir: Path | None = None) -> Iterator[None]:
    """No file of this process can be written to at all, which is harder than a full disk and needs no privilege."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@contextmanager
def locked_database(state_dir: Path) -> Iterator[None]:
    """As another program locks a database that it copies."""
    with closing(sqlite3.connect(state_dir / "server.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield
        other.execute("ROLLBACK")
