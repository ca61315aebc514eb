"""One of a server's workers: a plan, the worker that carries it out now, and what is with it.

submit ──► outgoing ──once a turn of the loop──► worker ── events ──► take
                                      Lost ──► on_lost ──► another worker, after a pause where the last did nothing
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Sequence

from cookhouse.engine.contract import (
    Account,
    Command,
    Create,
    Done,
    Event,
    Fetch,
    Forget,
    Load,
    Logged,
    Lost,
    Room,
    Sample,
    Up,
    Url,
    Worker,
)
from cookhouse.errors import CookhouseError
from cookhouse.server.pool.leftovers import delete_written
from cookhouse.server.pool.life import WorkerLife
from cookhouse.server.pool.needs import Need
from cookhouse.server.pool.pending import PendingCommand, num_tokens
from cookhouse.server.pool.plans import WorkerPlan
from cookhouse.server.refusals import LostError, error_of

_log = logging.getLogger(__name__)
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.5, 30.0
"""Before a worker is made again after one that did nothing, and lived shorter than the longest of these; doubled each
time."""
_REMEMBERED_SECONDS = 60.0
"""A refusal for want of memory: others on the machine may have freed some, of which nobody tells."""
_STEADY_SECONDS = 120.0
"""After a loss, before models that others train come to the next worker: it may end as well."""
_END_SECONDS = 1.0
"""For one that was lost to end, which it does by itself; what then still holds its place is killed."""

MakeWorker = Callable[[WorkerPlan], Worker]


class WorkerHandle:
    """Lives on the event loop."""

    def __init__(
        self,
        plan: WorkerPlan,
        make_worker: MakeWorker,
        *,
        take: Callable[["WorkerHandle", Event], None],
        on_lost: Callable[["WorkerHandle", str], None],
        on_tried: Callable[["WorkerHandle"], None] = lambda _member: None,
        is_alone: Callable[[], bool] = lambda: True,
    ) -> None:
        """`take` is given what the worker tells, `on_lost` why it ended, before another is made. `on_tried` is told
        when one is up, or could not be started again; `is_alone`: whether the server has no other.
        """
        self.plan = plan
        self.life = WorkerLife()
        self.is_up = False
        self.is_draining = False
        """Whether it is given nothing new, and ends."""
        self.commands: dict[str, PendingCommand] = {}
        """Those that are with it, by command."""
        self.snapshots: set[str] = set()
        """Weights that it was told of."""
        self.fetched: set[str] = set()
        """Those that it read from a file, and without a word may drop and read again."""
        self.evicted: set[str] = set()
        """Weights that it has dropped, or could not read, and others have."""
        self.num_tokens = 0
        """Of the commands that are with it."""
        self.unanswered: list[Url] = []
        """Folders that it was writing when that was taken from it; deleted once it has ended."""
        self.room: Room | None = None
        """As it told last; None: it is not up."""
        self.cannot_load: set[str] = set()
        """Base models of which a model that was moved here could not be loaded."""
        self._num_bytes: dict[str, int] = {}
        """Of base models, loaded or not, as far as it knows them."""
        self._refused_at: dict[Need, float] = {}
        """What it had no memory for when it was asked last, on the clock of `time.monotonic`."""
        self._make_worker = make_worker
        self._take = take
        self._on_lost = on_lost
        self._on_tried = on_tried
        self._is_alone = is_alone
        self._worker: Worker | None = None
        self._outgoing: list[Command] = []
        self._is_flushing = False
        self._up_at = 0.0
        self._pause_seconds = 0.0
        self._is_closing = False
        self._reader: asyncio.Task[None] | None = None

    @property
    def name(self) -> str:
        return self.plan.name

    async def open(self) -> Up:
        """Start a worker, and wait until it takes commands.

        Raises:
            CookhouseError: it cannot be made, for what the worker says.
        """
        up, events = await self._start()
        if self._is_closing:
            raise LostError("the engine was closed before it was up")
        self._reader = asyncio.create_task(self._read(events), name=f"worker events of {self.name}")
        self._on_tried(self)
        return up

    async def close(self, seconds: float) -> bool:
        """End the worker after its present turn; False if that takes longer than `seconds`."""
        self._is_closing = True
        is_closed = True
        worker, self._worker, self.is_up = self._worker, None, False
        self.life.end()
        if worker is not None:
            is_closed = await worker.close(seconds)
        if self._reader is not None:
            # What the worker told last is read before the end.
            await asyncio.wait([self._reader], timeout=seconds)
            self._reader.cancel()
            await asyncio.wait([self._reader])
        await self._delete_unanswered()
        return is_closed

    def put(self, call: PendingCommand) -> None:
        """Submit a command, which counts as this worker's until it is answered."""
        call.worker = self.name
        self.commands[call.command.command_id] = call
        self.num_tokens += num_tokens(call.command)
        self.submit(call.command)

    def pop(self, command_id: str) -> PendingCommand | None:
        """A command that is answered, or was lost."""
        call = self.commands.pop(command_id, None)
        if call is not None:
            call.worker = None
            self.num_tokens -= num_tokens(call.command)
        return call

    def submit(self, command: Command) -> None:
        """Hand over a command whose answer nobody waits for, after those before it. Without a worker it waits."""
        self._outgoing.append(command)
        if not self._is_flushing:
            self._is_flushing = True
            asyncio.get_running_loop().call_soon(self._flush)

    def withdraw(self, command_id: str) -> None:
        """Take back a command that waits until the worker is up, if it does."""
        if not self.is_up and self.pop(command_id) is not None:
            self._outgoing = [command for command in self._outgoing if command.command_id != command_id]

    def recall(self) -> tuple[Sequence[PendingCommand], Sequence[Forget]]:
        """Take back what waits for a worker that is not up: what was asked, and what was to be forgotten, in order."""
        assert not self.is_up
        forgets = [command for command in self._outgoing if isinstance(command, Forget)]
        self._outgoing.clear()
        calls = [self.pop(command_id) for command_id in list(self.commands)]
        self.snapshots, self.fetched, self.evicted = set(), set(), set()
        return [call for call in calls if call is not None], forgets

    def has_base_model(self, name: str) -> bool:
        """Whether a base model is loaded, as far as is known."""
        return self.room is None or name in self.room.base_models

    def lacks_room(self, need: Need) -> bool:
        """Whether it has no memory for this, as far as is known: it has said so, and not told of any change since; or
        the base model takes more than it has.
        """
        refused_at = self._refused_at.get(need)
        if refused_at is not None and time.monotonic() - refused_at < _REMEMBERED_SECONDS:
            return True
        if self.room is None or self.has_base_model(need.base_model):
            return False
        return self._num_bytes.get(need.base_model, 0) > self.room.free_bytes

    def has_room(self, need: Need, num_bytes: int) -> bool:
        """Whether so much is free beside the base model, as it has told, and it can load that."""
        if self.room is None or self.lacks_room(need) or need.base_model in self.cannot_load:
            return False
        base_bytes = 0 if self.has_base_model(need.base_model) else self._num_bytes.get(need.base_model, 0)
        return self.room.free_bytes >= base_bytes + num_bytes

    @property
    def is_steady(self) -> bool:
        """Whether it is up, and has not been lost for a while."""
        loss = self.life.last_loss
        return self.is_up and (loss is None or time.time() - loss.at > _STEADY_SECONDS)

    def note_refusal(self, command: Command) -> None:
        """It has no memory for a command, which it has just said. Of a sample that is the base model, if it is not
        loaded: where a cache is too small for one, others may fit.
        """
        if isinstance(command, Create | Load | Fetch):
            self._refused_at[Need.of(command)] = time.monotonic()
        elif isinstance(command, Sample) and not self.has_base_model(command.request.base_model):
            self._refused_at[Need(command.request.base_model)] = time.monotonic()

    def note_room(self, room: Room) -> None:
        """It has told what it has room for."""
        if self.room is None or room.free_bytes != self.room.free_bytes:
            self._refused_at.clear()
        self.room = room

    @property
    def may_come(self) -> bool:
        """Whether it is up, or about to be: its last start has not failed."""
        return self.is_up or self.life.failed_start is None

    def forget_snapshot(self, account: Account, snapshot_id: str) -> None:
        """Have it forget weights that it was told of."""
        self.drop(snapshot_id)
        self.submit(Forget(command_id="", account=account, snapshot_ids=(snapshot_id,)))

    def drop(self, snapshot_id: str) -> None:
        """Remember nothing of weights."""
        for names in (self.snapshots, self.fetched, self.evicted):
            names.discard(snapshot_id)

    def note_dropped(self, snapshot_id: str) -> None:
        """It has weights no more, and others may have them; those that were forgotten meanwhile stay so."""
        if snapshot_id in self.snapshots:
            self.drop(snapshot_id)
            self.evicted.add(snapshot_id)

    def knows(self, command: Forget) -> bool:
        """Whether it has anything of what is to be forgotten, beside models."""
        has_weights = any(name in self.snapshots or name in self.evicted for name in command.snapshot_ids)
        return bool(command.urls) or has_weights or any(name in self.commands for name in command.command_ids)

    def _flush(self) -> None:
        """Submit all that has come up in this turn of the loop."""
        self._is_flushing = False
        if self._worker is not None and self.is_up and self._outgoing:
            commands, self._outgoing = self._outgoing, []
            self._worker.submit(commands)

    async def _start(self) -> tuple[Up, Sequence[Event]]:
        """A worker that is up, and what it told beside that."""
        self._worker = self._make_worker(self.plan)
        while True:
            events = await self._worker.events()
            if not events:
                raise LostError("the engine was closed before it was up")
            for index, event in enumerate(events):
                if isinstance(event, Logged):
                    self._relay(event)
                elif isinstance(event, Lost):
                    raise LostError(event.reason) if event.failure is None else error_of(event.failure)
                elif isinstance(event, Up):
                    self.is_up, self._up_at = not self._is_closing, time.monotonic()
                    self.cannot_load.clear()
                    self.life.begin(event.description, event.node)
                    self._num_bytes = {info.name: info.num_bytes for info in event.base_models}
                    self.note_room(event.room)
                    self._flush()
                    return event, events[index + 1 :]

    async def _read(self, events: Sequence[Event]) -> None:
        """Hand on what comes, at first these; from one worker after the other, until there is none."""
        waiting = deque(events)
        while True:
            while waiting:
                event = waiting.popleft()
                if isinstance(event, Lost):
                    waiting = deque(await self._replace(event.reason))
                else:
                    self._hand_on(event)
            if self._worker is None:
                return
            waiting.extend(await self._worker.events())
            if not waiting:
                return

    def _hand_on(self, event: Event) -> None:
        if isinstance(event, Logged):
            self._relay(event)
            return
        if isinstance(event, Done):
            self._pause_seconds = 0.0
        try:
            self._take(self, event)
        except Exception:
            _log.exception("an answer of the engine could not be handed on")

    async def _replace(self, reason: str) -> Sequence[Event]:
        """After a loss: what the next worker told behind its `Up`; nothing where there is none."""
        self.is_up = False
        if self._is_closing:
            return ()
        then = "it was leaving" if self.is_draining else "another is being started"
        _log.error("%s was lost: %s; %s", self.in_words, reason, then)
        self.life.lose(reason)
        self.room = None
        self._outgoing.clear()
        try:
            self._on_lost(self, reason)
        except Exception:
            _log.exception("what went with %s could not be dealt with", self.in_words)
        await self._drop()
        return () if self.is_draining else await self._restart()

    async def _restart(self) -> Sequence[Event]:
        """Start workers until one is up; after a pause where the last one did nothing, and did not live long."""
        while not self._is_closing:
            began_at = time.monotonic()
            if began_at - self._up_at > _LONGEST_PAUSE_SECONDS:
                self._pause_seconds = 0.0
            await asyncio.sleep(self._pause_seconds)
            if self._is_closing:
                break
            self._pause_seconds = min(max(2 * self._pause_seconds, _FIRST_PAUSE_SECONDS), _LONGEST_PAUSE_SECONDS)
            try:
                _, events = await self._start()
            except Exception as error:  # also what a machine without memory or descriptors raises
                words = words_of(error)
                _log.error(
                    "%s could not be started again: %s; trying in %g s", self.in_words, words, self._pause_seconds
                )
                self.life.fail(words)
                await self._drop()
                self._on_tried(self)
                continue
            _log.warning("a new %s is up after %.1f s", self.plan.name, time.monotonic() - began_at)
            self._on_tried(self)
            return events
        return ()

    async def _drop(self) -> None:
        """End what is left of a worker that was lost: it may have a GPU, or a place on a node."""
        worker, self._worker = self._worker, None
        if worker is not None:
            await worker.close(_END_SECONDS)
        await self._delete_unanswered()

    async def _delete_unanswered(self) -> None:
        urls, self.unanswered = self.unanswered, []
        if urls:
            await asyncio.to_thread(delete_written, urls)

    @property
    def in_words(self) -> str:
        """For the log and for clients."""
        return "the engine" if self._is_alone() else f"{self.name} of the engine"

    def _relay(self, event: Logged) -> None:
        """Hand a record of the worker's to this process's log, with the worker's name where there are several."""
        text = event.message if self._is_alone() else f"{self.name}: {event.message}"
        logging.getLogger(event.name).log(event.level, "%s", text)


def words_of(error: Exception) -> str:
    """Why a worker could not be started."""
    return f"{error}" if isinstance(error, CookhouseError) else f"{type(error).__name__}: {error}"
