"""Handle of one of a server's workers: a plan, the worker that carries it out now, and the commands that are with it.

put ──► outgoing ──once a turn of the loop──► worker ── events ──► take
                                 Lost ──► take ──► another worker, after a pause where the last did nothing
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from cookhouse.engine.contract import (
    Account,
    Command,
    Done,
    Event,
    Forget,
    Logged,
    Lost,
    Output,
    Pass,
    Sample,
    Save,
    SaveSnapshot,
    Up,
    Url,
    Worker,
)
from cookhouse.errors import CookhouseError
from cookhouse.server.pool.leftovers import delete_written
from cookhouse.server.pool.life import WorkerLife
from cookhouse.server.pool.memory import WorkerMemory
from cookhouse.server.pool.pending import PendingCommand
from cookhouse.server.pool.plans import WorkerPlan
from cookhouse.server.refusals import LostError, error_of

_log = logging.getLogger(__name__)
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.5, 30.0
"""Before a worker is made again after one that did nothing, and lived shorter than the longest of these; doubled each
time."""
_STEADY_SECONDS = 120.0
"""After a loss, before models that others train come to the next worker: it may end as well."""
_END_SECONDS = 1.0
"""For one that was lost to end, which it does by itself; what then still holds its place is killed."""

_UNBOUNDED_TOKENS = 1024
"""What a sample counts that names no `max_tokens`."""

MakeWorker = Callable[[WorkerPlan], Worker]


@dataclass(frozen=True, slots=True)
class NotStarted:
    """A worker that was to follow a lost one could not be started, which is tried again."""

    reason: str


Take = Callable[["WorkerHandle", Event | NotStarted], None]
"""Is given what a worker reports: `Up` once it takes commands, and `Lost` before another is made."""


class WorkerHandle:
    """Lives on the event loop."""

    def __init__(self, plan: WorkerPlan, make_worker: MakeWorker, take: Take) -> None:
        self.plan = plan
        self.name = plan.name
        self.life = WorkerLife()
        self.memory = WorkerMemory()
        self.is_up = False
        self.is_draining = False
        """Whether it is given nothing new, and ends."""
        self.is_only = True
        """Whether the server has no other."""
        self.commands: dict[str, PendingCommand] = {}
        """Those that are with it, by id."""
        self.num_tokens = 0
        """Of the commands that are with it."""
        self._unanswered: list[Url] = []
        """Folders that it was writing when that was taken from it; deleted once it has ended."""
        self._make_worker = make_worker
        self._take = take
        self._worker: Worker | None = None
        self._outgoing: list[Command] = []
        self._is_flushing = False
        self._up_at = 0.0
        self._pause_seconds = 0.0
        self._is_closing = False
        self._reader: asyncio.Task[None] | None = None

    async def open(self) -> Up:
        """Start a worker, and wait until it takes commands.

        Raises:
            CookhouseError: it cannot be made, for what the worker says.
        """
        up, events = await self._start()
        if self._is_closing:
            raise LostError("the engine was closed before it was up")
        self._reader = asyncio.create_task(self._read(events), name=f"worker events of {self.name}")
        self._take(self, up)
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
            # What the worker reported last is read before the end.
            await asyncio.wait([self._reader], timeout=seconds)
            self._reader.cancel()
            await asyncio.wait([self._reader])
        await self._delete_unanswered()
        return is_closed

    @property
    def is_steady(self) -> bool:
        """True if it is up, and has not been lost for a while."""
        loss = self.life.last_loss
        return self.is_up and (loss is None or time.time() - loss.at > _STEADY_SECONDS)

    @property
    def may_come(self) -> bool:
        """True if it is up, or about to be: its last start has not failed."""
        return self.is_up or self.life.failed_start is None

    @property
    def in_words(self) -> str:
        """For the log and for clients."""
        return "the engine" if self.is_only else f"{self.name} of the engine"

    def put(self, pending: PendingCommand) -> None:
        """Submit a command, which counts as this worker's until it is answered."""
        command = pending.command
        pending.worker = self.name
        pending.num_tokens = num_tokens(command)
        self.commands[command.command_id] = pending
        self.num_tokens += pending.num_tokens
        self.submit(command)

    def pop(self, command_id: str) -> PendingCommand | None:
        """A command that is answered, or was lost."""
        pending = self.commands.pop(command_id, None)
        if pending is not None:
            pending.worker = None
            self.num_tokens -= pending.num_tokens
        return pending

    def ask(self, command: Command) -> asyncio.Future[Output]:
        """Submit a command that is for this worker. Raises as `Pool.send`."""
        pending = PendingCommand(command=command, answer=asyncio.get_running_loop().create_future())
        self.put(pending)
        return pending.answer

    def submit(self, command: Command) -> None:
        """Hand over a command whose answer nobody waits for, after those before it. Without a worker it waits."""
        self._outgoing.append(command)
        if not self._is_flushing:
            self._is_flushing = True
            asyncio.get_running_loop().call_soon(self._flush)

    def take_away(self, pending: PendingCommand) -> None:
        """Have a command be this worker's no more: what it writes for it is deleted once it has ended."""
        self.pop(pending.command.command_id)
        if isinstance(pending.command, Save | SaveSnapshot):
            self._unanswered.append(pending.command.url)

    def withdraw(self, command_id: str) -> None:
        """Take back a command that waits until the worker is up, if it does."""
        if not self.is_up and self.pop(command_id) is not None:
            self._outgoing = [command for command in self._outgoing if command.command_id != command_id]

    def recall(self) -> tuple[Sequence[PendingCommand], Sequence[Forget]]:
        """Take back what waits for a worker that is not up: what was asked, and what was to be forgotten, in order."""
        assert not self.is_up
        forgets = [command for command in self._outgoing if isinstance(command, Forget)]
        self._outgoing.clear()
        recalled = [self.pop(command_id) for command_id in list(self.commands)]
        self.memory.end()
        return [pending for pending in recalled if pending is not None], forgets

    def forget_snapshot(self, account: Account, snapshot_id: str) -> None:
        """Have it forget weights that it was given."""
        self.memory.forget(snapshot_id)
        self.submit(Forget(command_id="", account=account, snapshot_ids=(snapshot_id,)))

    def knows(self, command: Forget) -> bool:
        """True if it has anything of what is to be forgotten, apart from models."""
        is_asked = any(name in self.commands for name in command.command_ids)
        return bool(command.urls) or self.memory.knows(command) or is_asked

    def _flush(self) -> None:
        """Submit all that has come up in this turn of the loop."""
        self._is_flushing = False
        if self._worker is not None and self.is_up and self._outgoing:
            commands, self._outgoing = self._outgoing, []
            self._worker.submit(commands)

    async def _start(self) -> tuple[Up, Sequence[Event]]:
        """A worker that is up, and its other reports."""
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
                    self.life.begin(event.description, event.node)
                    self.memory.begin(event)
                    self._flush()
                    return event, events[index + 1 :]

    async def _read(self, events: Sequence[Event]) -> None:
        """Hand on what comes, at first these; from one worker after the other, until there is none."""
        waiting = deque(events)
        while True:
            while waiting:
                event = waiting.popleft()
                if isinstance(event, Lost):
                    waiting = deque(await self._replace(event))
                    continue
                if isinstance(event, Logged):
                    self._relay(event)
                    continue
                if isinstance(event, Done):
                    self._pause_seconds = 0.0
                try:
                    self._take(self, event)
                except Exception:
                    _log.exception("an answer of the engine could not be handed on")
            if self._worker is None:
                return
            waiting.extend(await self._worker.events())
            if not waiting:
                return

    async def _replace(self, lost: Lost) -> Sequence[Event]:
        """After a loss: what the next worker reported behind its `Up`; nothing where there is none."""
        self.is_up = False
        if self._is_closing:
            return ()
        then = "it was leaving" if self.is_draining else "another is being started"
        _log.error("%s was lost: %s; %s", self.in_words, lost.reason, then)
        self.life.lose(lost.reason)
        self.memory.room = None
        self._outgoing.clear()
        try:
            self._take(self, lost)
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
                up, events = await self._start()
            except Exception as error:  # also what a machine without memory or descriptors raises
                words = words_of(error)
                _log.error(
                    "%s could not be started again: %s; trying in %g s", self.in_words, words, self._pause_seconds
                )
                self.life.fail(words)
                await self._drop()
                self._take(self, NotStarted(words))
                continue
            _log.warning("a new %s is up after %.1f s", self.name, time.monotonic() - began_at)
            self._take(self, up)
            return events
        return ()

    async def _drop(self) -> None:
        """End what is left of a worker that was lost: it may have a GPU, or a place on a node."""
        worker, self._worker = self._worker, None
        if worker is not None:
            await worker.close(_END_SECONDS)
        await self._delete_unanswered()

    async def _delete_unanswered(self) -> None:
        urls, self._unanswered = self._unanswered, []
        if urls:
            await asyncio.to_thread(delete_written, urls)

    def _relay(self, event: Logged) -> None:
        """Hand a record of the worker's to this process's log, with the worker's name where there are several."""
        text = event.message if self.is_only else f"{self.name}: {event.message}"
        logging.getLogger(event.name).log(event.level, "%s", text)


def words_of(error: Exception) -> str:
    """Why a worker could not be started."""
    return f"{error}" if isinstance(error, CookhouseError) else f"{type(error).__name__}: {error}"


def num_tokens(command: Command) -> int:
    """Tokens that a command counts as when the load of workers is compared."""
    match command:
        case Pass(request=request):
            return sum(datum.tokens_T.size for datum in request.data_D)
        case Sample(request=request):
            most = _UNBOUNDED_TOKENS if request.max_tokens is None else request.max_tokens
            return int(request.prompt_T.size) + request.num_samples * most
    return 0
