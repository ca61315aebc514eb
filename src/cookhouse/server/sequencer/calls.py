"""Commands under way at a worker, and who waits for each. Lives on the event loop.

    send ──► outgoing ──once a turn of the loop──► worker ── events ──► the future of each command

A worker that is lost is replaced. What it held in memory is gone, and the commands that wait for it fail with
`LostError`; but samples do not depend on what else it did, so they are submitted again, with the same seed, to the next
one: when it has their weights, from a file or because they were published again. Of a streamed sample the tokens that
were told already are not told twice.
"""

import asyncio
import logging
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from cookhouse.engine.contract import (
    Account,
    Command,
    Done,
    Event,
    Evicted,
    Failed,
    Fetch,
    Forget,
    Logged,
    Lost,
    Output,
    Publish,
    Sample,
    SampleOutput,
    Spent,
    Tokens,
    Up,
    Worker,
)
from cookhouse.errors import CookhouseError
from cookhouse.server.refusals import LostError, error_of
from cookhouse.server.sequencer.life import WorkerLife
from cookhouse.server.sequencer.meter import Meter

_log = logging.getLogger(__name__)
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.5, 30.0
"""Before a worker is made again after one that did nothing, and lived shorter than the longest of these; doubled each
time."""

OnTokens = Callable[[SampleOutput], None]


@dataclass(slots=True, kw_only=True)
class _Call:
    command: Command
    answer: asyncio.Future[Output]
    on_tokens: OnTokens | None = None
    num_told: int = 0
    """Steps of a streamed sample that its client has."""
    num_to_skip: int = 0
    """Of these, those that the present worker tells again."""
    num_losses: int = 0
    """Workers that ended before they answered."""


class Calls:
    def __init__(
        self,
        make_worker: Callable[[], Worker],
        meter: Meter,
        *,
        max_losses: int = 3,
        on_lost: Callable[[str], None] = lambda _reason: None,
    ) -> None:
        """`make_worker` is called in the event loop's thread; `on_lost` is told why a worker ended, before its calls
        fail: what it sends goes to the next one, and what it expects will come there. `max_losses`: workers that may
        end under one sample, which may be what ends them.
        """
        self._make_worker = make_worker
        self._meter = meter
        self._max_losses = max_losses
        self._on_lost = on_lost
        self._worker: Worker | None = None
        self.life = WorkerLife()
        self._calls: dict[str, _Call] = {}
        self._outgoing: list[Command] = []
        self._is_up = False
        self._up_at = 0.0
        self._pause_seconds = 0.0
        self._is_flushing = False
        self._fetches: dict[str, Fetch] = {}
        """By snapshot: what a worker that lacks it is told first."""
        self._held: set[str] = set()
        """Snapshots that the present worker was told of."""
        self._coming: dict[str, list[Sample]] = {}
        """By snapshot that is to be published again: the samples that wait for it."""
        self._is_closing = False
        self._reader: asyncio.Task[None] | None = None

    @property
    def is_up(self) -> bool:
        """Whether there is a worker that takes commands."""
        return self._is_up

    async def open(self) -> Up:
        """Start a worker, and wait until it takes commands.

        Raises:
            CookhouseError: it cannot be made, for what the worker says.
        """
        up, events = await self._start()
        self._reader = asyncio.create_task(self._read(events), name="worker events")
        return up

    async def close(self, seconds: float) -> bool:
        """End the worker after its present turn; False if that takes longer than `seconds`."""
        self._is_closing = True
        is_closed = True
        worker, self._worker, self._is_up = self._worker, None, False
        if worker is not None:
            is_closed = await worker.close(seconds)
        if self._reader is not None:
            # What the worker told last is read before the end.
            await asyncio.wait([self._reader], timeout=seconds)
            self._reader.cancel()
            await asyncio.wait([self._reader])
        return is_closed

    def send(self, command: Command, on_tokens: OnTokens | None = None) -> asyncio.Future[Output]:
        """Submit a command after those submitted before it.

        The future raises `InputError` where the caller is to blame, `LostError` where the worker was lost, and another
        `ServiceError` where the worker failed.
        """
        answer: asyncio.Future[Output] = asyncio.get_running_loop().create_future()
        self._calls[command.command_id] = _Call(command=command, answer=answer, on_tokens=on_tokens)
        if isinstance(command, Fetch):
            self._fetches[command.snapshot_id] = command
        self._enqueue(command)
        return answer

    def forget(self, command: Forget) -> None:
        """Submit what has no answer."""
        for snapshot_id in command.snapshot_ids:
            self._fetches.pop(snapshot_id, None)
            self._held.discard(snapshot_id)
            self.give_up(snapshot_id)
        self._enqueue(command)

    def note_file(self, fetch: Fetch) -> None:
        """Take note of a file that a worker without these weights can read them from; nobody publishes them again."""
        self._fetches[fetch.snapshot_id] = fetch
        for sample in self._coming.pop(fetch.snapshot_id, ()):
            self._enqueue(sample)

    def forget_file(self, snapshot_id: str) -> None:
        """A file of weights is going to be deleted."""
        self._fetches.pop(snapshot_id, None)

    def holds(self, snapshot_id: str) -> bool:
        """Whether the present worker was told of weights."""
        return snapshot_id in self._held

    def expect(self, snapshot_id: str) -> None:
        """Have samples of weights that this worker lacks wait until they are published again, or given up."""
        if snapshot_id not in self._held and snapshot_id not in self._fetches:
            self._coming.setdefault(snapshot_id, [])

    def give_up(self, snapshot_id: str) -> None:
        """Weights will not be published again; what waits for them fails."""
        for sample in self._coming.pop(snapshot_id, ()):
            call = self._calls.pop(sample.command_id, None)
            if call is not None and not call.answer.done():
                call.answer.set_exception(LostError("the weights of this sampling client are gone"))

    def _enqueue(self, command: Command) -> None:
        self._outgoing.append(command)
        if not self._is_flushing:
            self._is_flushing = True
            asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        """Submit all that has come up in this turn of the loop; without a worker it waits for the next one."""
        self._is_flushing = False
        if self._worker is None or not self._is_up or not self._outgoing:
            return
        commands: list[Command] = []
        for command in self._outgoing:
            if isinstance(command, Sample):
                if (waiting := self._waiting_for(command)) is not None:
                    waiting.append(command)
                    continue
                commands += self._fetch_for(command)
            commands.append(command)
            if isinstance(command, Fetch | Publish):
                self._held.add(command.snapshot_id)
                commands += self._coming.pop(command.snapshot_id, ())
        self._outgoing.clear()
        self._worker.submit(commands)

    def _waiting_for(self, sample: Sample) -> list[Sample] | None:
        """Those that wait for the same weights to be published again; None: they need not."""
        return self._coming.get(sample.request.snapshot_id or "")

    def _fetch_for(self, sample: Sample) -> Sequence[Command]:
        """What has this worker read weights that an earlier one had. A failure of it is the sample's."""
        snapshot_id = sample.request.snapshot_id
        if snapshot_id is None or snapshot_id in self._held or snapshot_id not in self._fetches:
            return ()
        self._held.add(snapshot_id)
        return (replace(self._fetches[snapshot_id], command_id=uuid.uuid4().hex),)

    async def _start(self) -> tuple[Up, Sequence[Event]]:
        """A worker that is up, and what it told beside that."""
        self._worker = self._make_worker()
        while True:
            events = await self._worker.events()
            if not events:
                raise LostError("the engine was closed before it was up")
            for index, event in enumerate(events):
                if isinstance(event, Logged):
                    _relay(event)
                elif isinstance(event, Lost):
                    raise LostError(event.reason) if event.failure is None else error_of(event.failure)
                elif isinstance(event, Up):
                    self._is_up, self._up_at = True, time.monotonic()
                    self.life.begin(event.description)
                    self._flush()
                    return event, events[index + 1 :]

    async def _read(self, events: Sequence[Event]) -> None:
        while True:
            for event in events:
                if isinstance(event, Lost):
                    await self._replace(event.reason)
                    break
                try:
                    self._take(event)
                except Exception:
                    _log.exception("an answer of the engine could not be handed on")
            if self._worker is None and not self._is_up:
                return
            assert self._worker is not None
            events = await self._worker.events()
            if not events:
                return

    def _take(self, event: Event) -> None:
        match event:
            case Done(command_id=command_id, output=output):
                self._pause_seconds = 0.0
                call = self._calls.pop(command_id, None)
                if call is not None and not call.answer.done():
                    call.answer.set_result(output)
            case Failed(command_id=command_id, failure=failure):
                if failure.details:
                    _log.error("the engine failed: %s", failure.details)
                call = self._calls.pop(command_id, None)
                if call is not None and not call.answer.done():
                    call.answer.set_exception(error_of(failure))
            case Tokens(command_id=command_id, output=output):
                self._tell(self._calls.get(command_id), output)
            case Spent(amounts=amounts):
                self._meter.count(amounts)
            case Evicted(snapshot_id=snapshot_id):
                _log.info("weights of a sampling client were dropped: %s", snapshot_id)
            case Logged():
                _relay(event)

    def _tell(self, call: _Call | None, output: SampleOutput) -> None:
        if call is None or call.on_tokens is None:
            return
        if call.num_to_skip:
            call.num_to_skip -= 1
            return
        call.num_told += 1
        call.on_tokens(output)

    async def _replace(self, reason: str) -> None:
        """Fail what cannot be done again, and submit the rest to a new worker."""
        self._is_up = False
        if self._is_closing:
            return
        _log.error("the engine was lost: %s; another is being started", reason)
        self.life.lose(reason)
        self._held = set()
        self._coming = {}
        self._on_lost(reason)
        for call in self._calls.values():
            call.num_losses += 1
        again = [call for call in self._calls.values() if self._can_be_repeated(call)]
        lost = [call for call in self._calls.values() if not self._can_be_repeated(call)]
        self._calls = {call.command.command_id: call for call in again}
        self._outgoing = sorted((call.command for call in again), key=lambda command: isinstance(command, Sample))
        for call in again:
            call.num_to_skip = call.num_told
        for call in lost:
            if not call.answer.done():
                call.answer.set_exception(LostError(f"the engine was lost: {reason}"))
        await self._restart()

    async def _restart(self) -> None:
        """Start workers until one is up; after a pause where the last one did nothing, and did not live long."""
        while not self._is_closing:
            began_at = time.monotonic()
            if began_at - self._up_at > _LONGEST_PAUSE_SECONDS:
                self._pause_seconds = 0.0
            await asyncio.sleep(self._pause_seconds)
            self._pause_seconds = min(max(2 * self._pause_seconds, _FIRST_PAUSE_SECONDS), _LONGEST_PAUSE_SECONDS)
            try:
                _, events = await self._start()
            except CookhouseError as error:
                _log.error("the engine could not be started again: %s; trying in %g s", error, self._pause_seconds)
                self.life.fail(str(error))
                continue
            _log.warning("a new engine is up after %.1f s", time.monotonic() - began_at)
            for event in events:
                self._take(event)
            return

    def _can_be_repeated(self, call: _Call) -> bool:
        """Whether another worker answers it as this one would: what it needs is in files, or in a base model."""
        command = call.command
        if call.num_losses >= self._max_losses:
            return False
        if isinstance(command, Sample):
            snapshot_id = command.request.snapshot_id
            return snapshot_id is None or snapshot_id in self._fetches or snapshot_id in self._coming
        return isinstance(command, Fetch)


def _relay(event: Logged) -> None:
    logging.getLogger(event.name).log(event.level, "%s", event.message)


def forgetting(
    owner: str,
    session_id: str,
    *,
    model_ids: tuple[str, ...] = (),
    snapshot_ids: tuple[str, ...] = (),
    command_ids: tuple[str, ...] = (),
) -> Forget:
    """What has a worker free things of an owner's."""
    return Forget(
        command_id="",
        account=Account(owner, session_id),
        model_ids=model_ids,
        snapshot_ids=snapshot_ids,
        command_ids=command_ids,
    )
