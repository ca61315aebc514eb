"""Processes that write to a journal and kill themselves, each a moment later: python -m … FOLDER MOMENT…

The one that dies at its n-th moment leaves `FOLDER/n`, with what was acknowledged in `acknowledged.txt`.
"""

import asyncio
import itertools
import os
import shutil
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from unittest.mock import patch

import sqlalchemy as sa
from tests.server.storage.journal.examples import LARGE, body, entry, state

from cookhouse.server.storage.journal import AddEntry, GroupCommit, PutState, SegmentFiles
from cookhouse.server.storage.store.store import Store

NUM_AT_ONCE = 2
NUM_KEPT = 2
"""A state covers those that are older, by number of commits of one writer."""


def pair(number: int) -> tuple[AddEntry, AddEntry]:
    """The changes of one commit: a small body and a large one."""
    small = entry(2 * number, request_id=f"small-{number}")
    large = entry(2 * number + 1, request_id=f"large-{number}")
    return AddEntry(small, body(number)), AddEntry(large, body(number, LARGE))


def _write(folder: Path, num_moments: int) -> None:
    left = itertools.count(num_moments - 1, -1)

    def moment(*_: object) -> None:
        if next(left) == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    sync, unlink = os.fsync, Path.unlink

    def fsync(descriptor: int) -> None:
        moment()
        sync(descriptor)
        moment()

    def delete(path: Path, missing_ok: bool = False) -> None:
        moment()
        unlink(path, missing_ok)

    store = Store(folder / "server.db")
    for name in ("before_cursor_execute", "after_cursor_execute", "commit"):
        sa.event.listen(store.database.backend.writers, name, moment)
    with patch.object(os, "fsync", fsync), patch.object(Path, "unlink", delete):
        asyncio.run(_commit(GroupCommit(store, SegmentFiles(f"file://{folder / 'journal'}")), folder, moment))


async def _commit(group: GroupCommit, folder: Path, moment: Callable[[], None]) -> None:
    told = os.open(folder / "acknowledged.txt", os.O_WRONLY | os.O_APPEND)

    async def write(first: int) -> None:
        for number in itertools.count(first, NUM_AT_ONCE):
            await group.commit(*pair(number))
            moment()
            os.write(told, f"added {number}\n".encode())
            old = number - NUM_KEPT * NUM_AT_ONCE
            if old >= 0:
                os.write(told, f"dropping {old}\n".encode())
                await group.commit(PutState(state(f"state-{old}"), [f"small-{old}", f"large-{old}"]))

    await asyncio.gather(*map(write, range(NUM_AT_ONCE)))


def main(folder: Path, moments: Sequence[int]) -> None:
    with closing(Store(folder / "server.db")):
        pass
    for moment in moments:
        own = folder / str(moment)
        own.mkdir()
        shutil.copy(folder / "server.db", own)
        (own / "acknowledged.txt").touch()
        child = os.fork()
        if child == 0:
            _write(own, moment)
        _, status = os.waitpid(child, 0)
        assert os.WIFSIGNALED(status), f"moment {moment}: it ended by itself"


if __name__ == "__main__":
    main(Path(sys.argv[1]), [int(moment) for moment in sys.argv[2:]])
