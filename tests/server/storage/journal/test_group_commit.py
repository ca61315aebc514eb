"""Catches a request that is acknowledged unwritten, half a commit, one that fails those of others, and lost changes."""

import asyncio
import errno
import os
import sqlite3
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
import sqlalchemy as sa
from tests.server.conftest import Cluster
from tests.server.storage.journal.examples import LARGE, Fault, Journal, answer, body, entry, state

from cookhouse.server.refusals import StorageBusyError, StorageError
from cookhouse.server.storage.journal import (
    AddAnswer,
    AddEntry,
    AddSession,
    Change,
    DropAnswers,
    FinishEntry,
    GroupCommit,
    PutState,
)
from cookhouse.server.storage.store.rows import SessionRow

UNWRITABLE = AddSession(SessionRow(session_id="bad", owner="me", created_at=1.0, display_name="\ud800"))
"""No database takes half of a character."""


def add(position: int, content: bytes | None = None) -> AddEntry:
    return AddEntry(entry(position), body(position) if content is None else content)


def test_acknowledges_once_file_folder_and_row_are_synced(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    """The row last: else a crash leaves one that names nothing."""
    synced = []
    sync = os.fsync

    def fsync(descriptor: int) -> None:
        sync(descriptor)
        synced.append((Path(f"/proc/self/fd/{descriptor}").readlink(), journal.request_ids()))

    monkeypatch.setattr(os, "fsync", fsync)
    journal.run(lambda group: group.commit(add(1, body(1, LARGE))))
    segment = next((journal.folder / "journal").iterdir())
    assert synced == [(segment.with_name(f".{segment.name}"), []), (segment.parent, [])]
    assert journal.request_ids() == ["train-1"]
    with journal.store.database.writing() as session:  # 2: FULL, which syncs the log at each commit
        assert session.connection().exec_driver_sql("PRAGMA synchronous").scalar_one() == 2


def test_writes_what_comes_up_meanwhile_at_once(journal: Journal) -> None:
    async def main(group: GroupCommit) -> None:
        await asyncio.gather(*(group.commit(add(position, body(position, LARGE))) for position in range(64)))

    journal.run(main)
    assert journal.database.num_commits == 1
    assert [journal.reader.body(f"train-{position}") for position in range(64)] == [
        body(position, LARGE) for position in range(64)
    ]


def test_works_with_the_threads_of_an_ordinary_loop(journal: Journal) -> None:
    async def main() -> None:
        group = GroupCommit(journal.store, journal.segments)
        await asyncio.gather(*(group.commit(add(position)) for position in range(20)))
        group.later(add(20))
        await group.close()
        with pytest.raises(StorageBusyError, match="is stopping"):
            await group.commit(add(21))

    asyncio.run(main())
    assert len(journal.request_ids()) == 21


def test_a_writer_that_is_gone_is_told_to_who_waits(journal: Journal) -> None:
    async def main() -> None:
        with ThreadPoolExecutor(1) as executor:
            group = GroupCommit(journal.store, journal.segments, executor=executor)
            await group.commit(add(1))
        with pytest.raises(RuntimeError, match="after shutdown"):
            await group.commit(add(2))

    asyncio.run(main())
    assert journal.request_ids() == ["train-1"]


def test_one_that_cannot_be_applied_fails_alone_and_whole(placed_journal: Journal) -> None:
    async def main(group: GroupCommit) -> Sequence[object]:
        commits = (group.commit(add(1)), group.commit(add(2), UNWRITABLE, add(3)), group.commit(add(4)))
        return await asyncio.gather(*commits, return_exceptions=True)

    first, bad, last = placed_journal.run(main)
    assert (first, last) == (None, None)
    assert isinstance(bad, UnicodeEncodeError)
    assert placed_journal.request_ids() == ["train-1", "train-4"]
    assert placed_journal.database.num_commits == 1


def test_one_alone_that_cannot_be_applied_changes_nothing(journal: Journal) -> None:
    with pytest.raises(UnicodeEncodeError):
        journal.run(lambda group: group.commit(add(1), UNWRITABLE))
    assert journal.request_ids() == []


@pytest.mark.parametrize("content", [b"small", body(0, LARGE)], ids=["in its row", "in a segment"])
@pytest.mark.parametrize("fault", ["locked", "cut", "cut behind the commit"])
def test_tries_again_what_a_moment_prevents(journal: Journal, fault: Fault, content: bytes) -> None:
    """Behind a commit, too, whose answer was lost: it is there once."""
    journal.database.faults = [fault] * 3

    async def main(group: GroupCommit) -> None:
        await group.commit(add(1, content))
        await group.commit(AddEntry(entry(9, request_id="train-1"), b"the same request again"))
        await group.sweep()

    journal.run(main)
    assert [kept.position for kept in journal.reader.entries("s")] == [1]
    assert journal.reader.body("train-1") == content
    assert len(journal.files()) == (len(content) >= LARGE)


def test_gives_up_in_words_and_applies_nothing(journal: Journal) -> None:
    journal.database.faults = ["locked"] * 1000

    async def main(group: GroupCommit) -> float:
        with pytest.raises(StorageBusyError, match="nothing could be written for 25 s: it is locked"):
            await group.commit(add(1, body(1, LARGE)))
        waited = asyncio.get_running_loop().time()
        journal.database.faults.clear()
        await group.sweep()
        return waited

    assert 25 <= journal.run(main) < 27
    assert journal.request_ids() == []
    assert journal.files() == set()


@pytest.mark.parametrize("is_committed", [False, True])
def test_a_connection_cut_during_a_commit_leaves_one_row(
    tmp_path: Path, postgresql: Cluster, is_committed: bool
) -> None:
    """Before the database has heard of it, or behind it: it is found out by doing it again."""
    url = postgresql.new()
    journal = Journal(tmp_path, url)
    cuts = [True]

    def cut(connection: sa.Connection) -> None:
        if cuts:
            cuts.clear()
            if is_committed:
                connection.connection.commit()
            postgresql.cut(url)
            connection.exec_driver_sql("SELECT 1")  # finds that the connection is gone

    with closing(journal.store):
        sa.event.listen(journal.store.database.backend.writers, "commit", cut)
        journal.run(lambda group: group.commit(add(1, body(1, LARGE)), add(2)))
        assert not cuts
        assert journal.request_ids() == ["train-1", "train-2"]
        journal.run(lambda group: group.sweep())
        assert journal.reader.body("train-1") == body(1, LARGE)


def test_takes_back_what_may_have_been_applied(journal: Journal) -> None:
    """Else a restart would run a request whose client was told that it failed, and may have gone on without it."""
    journal.database.faults = ["cut behind the commit", *["locked"] * 200]  # type: ignore[list-item]

    async def main(group: GroupCommit) -> None:
        with pytest.raises(StorageBusyError):
            await group.commit(add(1))
        assert journal.request_ids() == ["train-1"]
        journal.database.faults.clear()
        await group.commit(AddEntry(entry(2, request_id="train-1"), b"again"))

    journal.run(main)
    assert [kept.position for kept in journal.reader.entries("s")] == [2]


def test_other_failures_are_told_at_once(journal: Journal) -> None:
    journal.database.faults = ["damaged"]

    async def main(group: GroupCommit) -> float:
        with pytest.raises(StorageError, match="it is damaged"):
            await group.commit(add(1))
        return asyncio.get_running_loop().time()

    assert journal.run(main) == 0


@pytest.mark.parametrize("fault", ["locked", "damaged", "cut behind the commit"])
def test_what_is_to_be_kept_is_not_given_up(journal: Journal, fault: Fault) -> None:
    """Would catch a state that is given up after it may have been written: its files would be deleted."""
    journal.database.faults = [fault] * 1000

    async def main(group: GroupCommit) -> None:
        keeping = asyncio.create_task(group.keep(PutState(state("new"), [], [])))
        await asyncio.sleep(60)
        assert not keeping.done()
        journal.database.faults.clear()
        await keeping

    journal.run(main)
    assert [kept.state_id for kept in journal.reader.states("s")] == ["new"]


def test_what_is_to_be_kept_does_not_keep_the_journal_from_closing(journal: Journal) -> None:
    journal.database.faults = ["locked"] * 1000

    async def main(group: GroupCommit) -> None:
        keeping = asyncio.create_task(group.keep(PutState(state("new"), [], [])))
        await asyncio.sleep(0)
        with pytest.raises(StorageBusyError, match="nothing could be written for 25 s"):
            await group.close()
        with pytest.raises(StorageBusyError, match="nothing could be written: it is locked"):
            await keeping

    journal.run(main)
    assert journal.reader.states("s") == []


def test_waits_for_a_lock_of_another_program(journal: Journal) -> None:
    async def main() -> None:
        group = GroupCommit(journal.store, journal.segments)
        with closing(sqlite3.connect(journal.folder / "server.db", isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            commit = asyncio.create_task(group.commit(add(1)))
            await asyncio.sleep(0.1)
            assert not commit.done()
            other.execute("ROLLBACK")
        await commit

    asyncio.run(main())
    assert journal.request_ids() == ["train-1"]


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
@pytest.mark.parametrize("num_failures", [3, 1000])
def test_a_full_disk_leaves_no_part_of_a_segment(
    journal: Journal, monkeypatch: pytest.MonkeyPatch, num_failures: int, code: int
) -> None:
    failures = [OSError(code, os.strerror(code))] * num_failures
    sync = os.fsync

    def fsync(descriptor: int) -> None:
        if failures:
            raise failures.pop()
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)

    async def main(group: GroupCommit) -> None:
        await group.commit(add(1, body(1, LARGE)))

    if num_failures == 3:
        journal.run(main)
    else:
        with pytest.raises(StorageBusyError, match="the service's disk is full; free space on it"):
            journal.run(main)
    assert len(journal.files()) == len(journal.request_ids()) == (num_failures == 3)


def test_later_is_within_a_second_and_in_order(journal: Journal) -> None:
    async def main(group: GroupCommit) -> Sequence[int]:
        kept = []
        group.later(add(1))
        group.later(FinishEntry(answer("train-1")))
        for _ in range(2):
            kept.append(len(journal.reader.answers("s")))
            await asyncio.sleep(1.1)
        group.later(AddAnswer(answer("train-2")))
        await group.commit(DropAnswers(["train-2"]))  # behind it, so that it is gone
        return [*kept, len(journal.reader.answers("s"))]

    assert journal.run(main) == [0, 1, 1]
    assert journal.request_ids() == []


@pytest.mark.parametrize("fault", ["locked", "damaged", "cut behind the commit"])
def test_later_survives_failures(journal: Journal, fault: Fault) -> None:
    journal.database.faults = [fault] * 41

    async def main(group: GroupCommit) -> None:
        group.later(AddAnswer(answer("train-1", b"first")))
        group.later(AddAnswer(answer("train-1", b"second")))
        await asyncio.gather(*(group.commit(add(position)) for position in range(2)), return_exceptions=True)
        await asyncio.sleep(60)

    journal.run(main)
    assert [kept.body for kept in journal.reader.answers("s")] == [b"first"]


def test_later_that_can_never_be_applied_holds_up_nothing(journal: Journal, caplog: pytest.LogCaptureFixture) -> None:
    async def main(group: GroupCommit) -> None:
        group.later(UNWRITABLE)
        group.later(add(1))
        await group.flush()

    journal.run(main)
    assert journal.request_ids() == ["train-1"]
    assert "cannot be applied, and are left out: AddSession\n" in caplog.text


def test_flush_and_close_write_what_waits(journal: Journal) -> None:
    async def main(group: GroupCommit) -> list[str]:
        group.later(add(1))
        await group.flush()
        flushed = journal.request_ids()
        group.later(add(2))
        await group.close()
        return flushed

    assert journal.run(main) == ["train-1"]
    assert journal.request_ids() == ["train-1", "train-2"]


def test_a_caller_that_goes_leaves_its_commit(journal: Journal) -> None:
    async def main(group: GroupCommit) -> None:
        gone = asyncio.create_task(group.commit(add(1)))
        await asyncio.sleep(0)
        gone.cancel()
        await group.commit(add(2))

    journal.run(main)
    assert journal.request_ids() == ["train-1", "train-2"]


def test_disk_use_is_flat(journal: Journal) -> None:
    """Over thousands of entries, of which states cover all but the newest: rows' pages and segments are used again."""

    async def main(group: GroupCommit) -> tuple[list[int], list[int]]:
        sizes, counts = [], []
        for step in range(60):
            first = 50 * step
            changes: list[Change] = [add(position, body(position, 2000)) for position in range(first, first + 49)]
            await asyncio.gather(*(group.commit(change) for change in changes))
            await group.commit(add(first + 49, body(first, LARGE)))
            covered = [f"train-{position}" for position in range(first, first + 50)]
            old = [f"train-{position}" for position in range(first - 50, first)]
            answers = [answer(request_id, body(step, 500)) for request_id in covered]
            await group.commit(PutState(state(f"state-{step}"), covered, answers), DropAnswers(old))
            files = [path for path in journal.folder.rglob("*") if path.is_file()]
            sizes.append(sum(path.stat().st_size for path in files))
            counts.append(len(journal.files()))
        return sizes, counts

    sizes, counts = journal.run(main)
    assert max(counts) == 0
    assert sizes[-1] <= max(sizes[:30]) < 16 * 2**20
    assert journal.request_ids() == []


def test_a_segment_stays_while_a_row_names_it(journal: Journal) -> None:
    async def main(group: GroupCommit) -> Sequence[int]:
        await group.commit(add(1, body(1, LARGE)), add(2, body(2, LARGE)))
        counts = []
        for request_id in ("train-1", "train-2"):
            await group.commit(FinishEntry(answer(request_id)))
            counts.append(len(journal.files()))
        return counts

    assert journal.run(main) == [1, 0]


def test_a_large_body_goes_while_another_of_its_group_stays(journal: Journal) -> None:
    """Would catch a tenant's data that stays on the disk because another's were written with it."""

    async def main(group: GroupCommit) -> Sequence[int]:
        await asyncio.gather(group.commit(add(1, body(1, LARGE))), group.commit(add(2, body(2, LARGE))))
        counts = [len(journal.files())]
        await group.commit(FinishEntry(answer("train-1")))
        return [*counts, len(journal.files())]

    assert journal.run(main) == [2, 1]


def test_a_sweep_puts_aside_what_no_row_names(journal: Journal) -> None:
    """Would catch bodies of live sessions that a start with another database deletes."""

    async def main(group: GroupCommit) -> str | None:
        await group.commit(add(1, body(1, LARGE)))
        left = journal.segments.write([body(2, LARGE)])[0].segment
        (journal.folder / "journal" / "notes.txt").write_text("not ours")
        (journal.folder / "journal" / f".{'0' * 32}.segment").write_text("begun")
        assert left in journal.files()
        return left

    async def restarted(group: GroupCommit) -> None:
        await group.sweep()

    left = journal.run(main)
    journal.run(restarted)
    assert len(journal.files()) == 2
    assert [path.name for path in (journal.folder / "journal-put-aside").iterdir()] == [left]
    assert "notes.txt" in journal.files()
    assert journal.reader.body("train-1") == body(1, LARGE)
