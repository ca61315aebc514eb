"""A journal to write to, rows to write, and a store that fails when it is told to."""

import contextlib
import random
import sqlite3
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeVar, cast

import sqlalchemy as sa
from sqlalchemy.orm import Session
from tests.simulation.virtual import World

from cookhouse.server.refusals import StorageBusyError, StorageError
from cookhouse.server.storage.journal import FINISHED, Answer, Entry, GroupCommit, JournalReader, SegmentFiles, State
from cookhouse.server.storage.journal.segments import MAX_ROW_BYTES
from cookhouse.server.storage.store.database import Database
from cookhouse.server.storage.store.store import Store

T = TypeVar("T")
Fault = Literal["locked", "damaged", "cut", "cut behind the commit"]
LARGE = MAX_ROW_BYTES + 1
"""Bytes of the smallest body that has no place in a row."""


def body(seed: int, num_bytes: int = 100) -> bytes:
    return random.Random(seed).randbytes(num_bytes)


def entry(position: int, *, request_id: str | None = None, session_id: str = "s") -> Entry:
    return Entry(
        request_id=request_id or f"train-{position}",
        model_id=f"{session_id}:0",
        session_id=session_id,
        owner="me",
        seq_id=position,
        kind="forward_backward",
        position=position,
        drawn={"seed": position},
        num_bytes=1000 + position,
        encoding="zstd",
        accepted_at=5.0,
    )


def answer(request_id: str, content: bytes = b"done", *, session_id: str = "s") -> Answer:
    return Answer(
        request_id=request_id,
        session_id=session_id,
        owner="me",
        media_type="application/json",
        status=200,
        is_failure=False,
        kind="optim_step",
        body=content,
    )


def state(state_id: str, *, session_id: str = "s") -> State:
    return State(
        model_id=f"{session_id}:0",
        session_id=session_id,
        state_id=state_id,
        num_bytes=7,
        seen={"upto": 3},
        last_checkpoint="tinker://s:0/weights/a",
        created_at=6.0,
    )


@dataclass
class FlakyDatabase:
    """A database whose next transactions fail, each with one of the faults, and which counts those that do not."""

    real: Database
    faults: list[Fault] = field(default_factory=list)
    num_commits: int = 0

    @contextlib.contextmanager
    def transaction(self, busy_seconds: float | None = None) -> Iterator[sa.Connection]:
        fault = self.faults.pop(0) if self.faults else None
        if fault == "locked":
            raise StorageBusyError("it is locked")
        if fault == "damaged":
            raise StorageError("it is damaged")
        if fault == "cut":
            raise _cut()
        with self.real.transaction(busy_seconds) as connection:
            yield connection
        self.num_commits += 1
        if fault == "cut behind the commit":
            raise _cut()

    def reading(self) -> contextlib.AbstractContextManager[Session]:
        return self.real.reading()


def _cut() -> StorageError:
    error = StorageBusyError("the connection was lost")
    error.__cause__ = sa.exc.OperationalError(
        "COMMIT", None, sqlite3.OperationalError("gone"), connection_invalidated=True
    )
    return error


@dataclass
class _FlakyStore:
    database: FlakyDatabase


class Journal:
    """A journal in a folder, and a database of any kind, on a loop whose time is virtual."""

    def __init__(self, folder: Path, place: Path | str | None = None, url: str | None = None) -> None:
        self.folder = folder
        self.store = Store(place or folder / "server.db")
        self.database = FlakyDatabase(self.store.database)
        self.segments = SegmentFiles(url or f"file://{folder / 'journal'}")
        self.reader = JournalReader(self.store, self.segments)

    def run(self, main: Callable[[GroupCommit], Awaitable[T]]) -> T:
        """Do something with a group commit, which is made anew, as after a restart, and is not closed."""

        async def whole() -> T:
            return await main(GroupCommit(cast(Store, _FlakyStore(self.database)), self.segments))

        with World(seed=random.randrange(2**32)) as world:
            return world.run(whole())

    def request_ids(self, session_id: str = "s") -> list[str]:
        """Those that have not finished."""
        return [entry.request_id for entry in self.reader.entries(session_id) if entry.kind != FINISHED]

    def files(self) -> set[str]:
        return {path.name for path in (self.folder / "journal").iterdir()}
