"""Changes of the journal, written together with those that come up meanwhile. Lives on the event loop."""

import asyncio
import itertools
import logging
import math
import time
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import Any, TypeVar

import sqlalchemy as sa

from cookhouse.server.refusals import LeaseLostError, StorageBusyError, StorageError
from cookhouse.server.storage.journal.rows import AddEntry, Change, DropEntry
from cookhouse.server.storage.journal.segments import SegmentFiles
from cookhouse.server.storage.journal.steps import NAMED_SEGMENTS, Statement, bodies_of, execute, steps_of
from cookhouse.server.storage.store.failures import is_cut
from cookhouse.server.storage.store.store import Store

T = TypeVar("T")
_log = logging.getLogger(__name__)
_ATTEMPT_SECONDS = 1.0
"""How long one attempt waits for a lock; what came up meanwhile is part of the next."""
_PAUSE_SECONDS = 0.2
_LATER_SECONDS = 1.0
_MAX_GROUP_BYTES = 64 * 2**20
"""Of bodies that are written at once; a single commit may have more."""


@dataclass(slots=True, eq=False)
class _Commit:
    changes: Sequence[Change]
    done: "asyncio.Future[None] | None"
    """None: nobody waits for it, and no failure ends it."""
    give_up_at: float
    bodies: Sequence[bytes] = field(init=False)
    num_bytes: int = field(init=False)
    steps: Sequence[Statement] | None = None
    """Made once its bodies are where they belong; they stay there when the rows have to be written again."""
    segments: set[str] = field(default_factory=set)
    is_unknown: bool = False
    """Whether it may have been applied although it failed."""

    def __post_init__(self) -> None:
        self.bodies = [body for change in self.changes for body in bodies_of(change)]
        self.num_bytes = sum(map(len, self.bodies))

    def undone(self) -> "_Commit | None":
        """Commit that takes back the requests that this one may have kept, none of which was acknowledged."""
        entries = [change.entry for change in self.changes if isinstance(change, AddEntry)]
        drops = [DropEntry(entry.request_id, entry.position) for entry in entries]
        return _Commit(drops, None, 0.0) if drops and self.is_unknown else None


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitState:
    """State of writing. Times in seconds since the epoch."""

    last_at: float | None
    """When something was written last; None: nothing has been yet."""
    failing_since: float | None
    failure: str | None
    """Why nothing can be written now."""
    num_waiting: int
    """Commits that are not on the disk."""
    waiting_bytes: int
    """Of their bodies."""


class GroupCommit:
    """One group is written at a time, in order. Its blocking work is done by the `executor`, or the loop's own."""

    def __init__(
        self,
        store: Store,
        segments: SegmentFiles,
        *,
        patience_seconds: float = 25.0,
        executor: Executor | None = None,
    ) -> None:
        """`patience_seconds`: how long a commit is tried while the store is locked or full."""
        self._patience_seconds = patience_seconds
        self._database = store.database
        self._segments = segments
        self._executor = executor
        self._queue: list[_Commit] = []
        """What has not been written, in order; the group that is being written first."""
        self._writer: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._turn = asyncio.Lock()
        self._written: set[str] = set()
        """Segments that are known to be there."""
        self._last_at: float | None = None
        self._failing_since: float | None = None
        self._failure: str | None = None
        self._is_closed = False

    @property
    def state(self) -> CommitState:
        return CommitState(
            last_at=self._last_at,
            failing_since=self._failing_since,
            failure=self._failure,
            num_waiting=len(self._queue),
            waiting_bytes=sum(commit.num_bytes for commit in self._queue),
        )

    async def commit(self, *changes: Change, patience_seconds: float | None = None) -> None:
        """Return when all of the changes are on the disk. Canceled, they are written all the same.

        `patience_seconds`: in place of the journal's own.

        Raises:
            StorageBusyError: the store was locked or full for so long; none of them is applied.
            StorageError: it failed otherwise; the same.
        """
        if self._is_closed:
            raise StorageBusyError("the service is stopping; try again")
        loop = asyncio.get_running_loop()
        done = loop.create_future()
        seconds = self._patience_seconds if patience_seconds is None else patience_seconds
        self._queue.append(_Commit(changes, done, loop.time() + seconds))
        self._start()
        await done

    async def keep(self, *changes: Change) -> None:
        """`commit`, of what cannot be taken back any more: it is tried for as long as the store fails.

        Raises:
            StorageError: the journal was closed before that.
        """
        await self.commit(*changes, patience_seconds=math.inf)

    def later(self, *changes: Change) -> None:
        """Have changes written with the next commit, at the latest after a second. A failure does not lose them."""
        assert not self._is_closed, "the journal is closed"
        self._queue.append(_Commit(changes, None, 0.0))
        self._start_later()

    async def flush(self) -> None:
        """Return when all is on the disk that was asked for before. Raises as `commit`."""
        if self._queue:
            await self.commit()

    async def sweep(self, is_alone: Callable[[], bool] = lambda: True) -> None:
        """Put aside segments that no row names, which an earlier process left behind, and delete what it had begun.

        `is_alone`: asked, in a thread, once it is known which there are: whether no other server may have written them.

        Raises:
            StorageError: some could not be dealt with.
        """
        async with self._turn:
            begun = await self._in_thread(self._segments.unfinished)
            found = await self._in_thread(self._segments.names)
            if await self._in_thread(is_alone):
                needed = {name for commit in self._queue for name in commit.segments}
                unnamed = await self._in_thread(self._unnamed, found - self._written - needed)
                await self._in_thread(self._segments.delete, sorted(begun))
                await self._in_thread(self._segments.put_aside, unnamed)
                self._written |= found - unnamed
                await self._delete_unnamed()

    def adopt(self, segments: Collection[str]) -> None:
        """Take care of segments that another server has written: they go with the rows that name them."""
        self._written.update(segments)

    async def close(self) -> None:
        """`flush`, and take nothing more. Raises as `commit`."""
        try:
            await self.flush()
        finally:
            self._is_closed = True
            if self._timer is not None:
                self._timer.cancel()
            if self._writer is not None:
                await asyncio.wait([self._writer])

    def _start(self) -> None:
        if self._writer is None:
            self._writer = asyncio.create_task(self._write_all())

    def _start_later(self) -> None:
        if self._timer is None and not self._is_closed:
            self._timer = asyncio.get_running_loop().call_later(_LATER_SECONDS, self._on_time)

    def _on_time(self) -> None:
        self._timer = None
        if self._queue:
            self._start()

    async def _write_all(self) -> None:
        try:
            while self._queue:
                async with self._turn:
                    has_failed = await self._write_first()
                if has_failed and all(commit.done is None for commit in self._queue):
                    self._start_later()
                    return
                if has_failed:
                    await asyncio.sleep(_PAUSE_SECONDS)
        finally:
            self._writer = None

    async def _write_first(self) -> bool:
        """Write the first group, and keep what of it has to be tried again; whether there is such."""
        sizes = itertools.accumulate(commit.num_bytes for commit in self._queue)
        num_fitting = sum(1 for _ in itertools.takewhile(lambda size: size <= _MAX_GROUP_BYTES, sizes))
        group = self._queue[: max(1, num_fitting)]
        try:
            errors = await self._in_thread(self._write, group)
        except RuntimeError as error:  # the executor has been shut down: those who wait are to hear of it
            errors = [error] * len(group)
        self._written.update(*(commit.segments for commit in group))
        now = asyncio.get_running_loop().time()
        left = [self._settle(commit, error, now) for commit, error in zip(group, errors, strict=True)]
        kept = [commit for commit in left if commit is not None]
        self._queue[: len(group)] = kept
        self._report(next((error for error in errors if isinstance(error, StorageError)), None))
        if self._written and any(step.deletes for commit in group for step in commit.steps or ()):
            try:
                await self._delete_unnamed()
            except Exception as error:  # what was written is written
                _log.warning("segments of the journal are left for the next time: %s", error, exc_info=error)
        return bool(kept)

    def _settle(self, commit: _Commit, error: Exception | None, now: float) -> _Commit | None:
        """Tell who waits for it what became of a commit; returns what has to be tried instead."""
        if isinstance(error, StorageError):
            commit.is_unknown |= is_cut(error)
            if commit.done is None or (not self._is_closed and self._is_tried_again(commit, error, now)):
                return commit
        if commit.done is None:
            if error is not None:
                kinds = ", ".join(type(change).__name__ for change in commit.changes)
                _log.error("changes of the journal cannot be applied, and are left out: %s", kinds, exc_info=error)
        elif not commit.done.done():
            if error is None:
                commit.done.set_result(None)
            elif isinstance(error, StorageBusyError):
                seconds = f" for {self._patience_seconds:g} s" if commit.give_up_at < math.inf else ""
                busy = StorageBusyError(f"nothing could be written{seconds}: {error}")
                busy.__cause__ = error
                commit.done.set_exception(busy)
            else:
                commit.done.set_exception(error)
        return None if error is None else commit.undone()

    def _is_tried_again(self, commit: _Commit, error: StorageError, now: float) -> bool:
        if isinstance(error, LeaseLostError):
            return False
        return now < commit.give_up_at and (isinstance(error, StorageBusyError) or commit.give_up_at == math.inf)

    def _report(self, error: StorageError | None) -> None:
        """Say it once."""
        if error is None:
            self._last_at = time.time()
            if self._failing_since is not None:
                _log.warning("the journal can be written again")
            self._failing_since = self._failure = None
            return
        self._failure = str(error)
        if self._failing_since is None:
            _log.warning("the journal cannot be written, and is tried again: %s", error)
            self._failing_since = time.time()

    async def _in_thread(self, work: Callable[..., T], *args: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._executor, work, *args)

    async def _delete_unnamed(self) -> None:
        needed = {name for commit in self._queue for name in commit.segments}
        self._written -= await self._in_thread(self._delete_others, self._written - needed)

    # In the executor's thread.

    def _write(self, group: Sequence[_Commit]) -> Sequence[Exception | None]:
        """Write the commits, and return the error of each; a failure of the store is that of all."""
        try:
            for commit in group:
                if commit.steps is None:  # bodies that do not belong into rows: each commit's apart, for its session
                    places = self._segments.write(commit.bodies)
                    ahead = iter(places)
                    commit.steps = [step for change in commit.changes for step in steps_of(change, ahead)]
                    commit.segments = {place.segment for place in places if place.segment is not None}
            try:
                with self._database.transaction(_ATTEMPT_SECONDS) as connection:
                    execute(connection, *(commit.steps or () for commit in group))
                return [None] * len(group)
            except StorageError:
                raise
            except Exception:
                if len(group) == 1:
                    raise
                return self._write_each(group)
        except Exception as error:
            return [error] * len(group)

    def _write_each(self, group: Sequence[_Commit]) -> Sequence[Exception | None]:
        """The same in one transaction, without those that cannot be applied."""
        errors: list[Exception | None] = []
        with self._database.transaction(_ATTEMPT_SECONDS) as connection:
            for commit in group:
                try:
                    with connection.begin_nested():
                        execute(connection, commit.steps or ())
                    errors.append(None)
                except Exception as error:
                    is_its_own = isinstance(error, sa.exc.IntegrityError | sa.exc.DataError)
                    if isinstance(error, sa.exc.DBAPIError) and not is_its_own:  # the store's
                        raise
                    errors.append(error)
        return errors

    def _delete_others(self, names: set[str]) -> set[str]:
        """Delete those of these segments that no row names; returns them."""
        unnamed = self._unnamed(names)
        self._segments.delete(sorted(unnamed))
        return unnamed

    def _unnamed(self, names: set[str]) -> set[str]:
        with self._database.reading() as session:
            return names - set(session.scalars(NAMED_SEGMENTS))
