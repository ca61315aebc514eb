"""A process that writes to a journal until it is killed, and prints what has been acknowledged: python -m … FOLDER."""

import asyncio
import itertools
import sys
from pathlib import Path

from tests.server.journal.examples import LARGE, body, entry, state

from cookhouse.server.journal import AddEntry, GroupCommit, PutState, Segments
from cookhouse.server.store.store import Store

NUM_AT_ONCE = 3
_KEPT = 20
"""A state covers those that are older, by number of commits of one writer."""


def pair(number: int) -> tuple[AddEntry, AddEntry]:
    """The changes of one commit: a small body and a large one."""
    small = entry(2 * number, request_id=f"small-{number}")
    large = entry(2 * number + 1, request_id=f"large-{number}")
    return AddEntry(small, body(number)), AddEntry(large, body(number, LARGE))


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


async def _write(folder: Path) -> None:
    segments = Segments(f"file://{folder / 'journal'}")
    group = GroupCommit(Store(folder / "server.db"), segments)

    async def write(first: int) -> None:
        for number in itertools.count(first, NUM_AT_ONCE):
            await group.commit(*pair(number))
            _say(f"added {number}")
            old = number - _KEPT * NUM_AT_ONCE
            if old >= 0:
                _say(f"dropping {old}")
                await group.commit(PutState(state(f"state-{old}"), [f"small-{old}", f"large-{old}"]))

    await asyncio.gather(*map(write, range(NUM_AT_ONCE)))


if __name__ == "__main__":
    asyncio.run(_write(Path(sys.argv[1])))
