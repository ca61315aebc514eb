"""Commands under way at the workers of a server, and who waits for each. Lives on the event loop.

    send ──► Placement ──► WorkerHandle ──► worker ── events ──► the future of each command
                 └── a sample whose weights are elsewhere: written there, fetched here, then drawn

A worker that is lost is replaced. What it held in memory is gone, and the commands that wait for it fail with
`LostError`; but samples do not depend on what else it did, so they are submitted again, with the same seed, to another
one: when it has their weights, from a file or because they were published again. Of a streamed sample the tokens that
were told already are not told twice.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from cookhouse.engine.contract import (
    Amount,
    CanceledError,
    Command,
    Create,
    DamagedError,
    Done,
    Event,
    Evicted,
    Failed,
    Fetch,
    Forget,
    Load,
    ModelCommand,
    NoMemoryError,
    Output,
    Room,
    Sample,
    Save,
    Spent,
    Tokens,
    Up,
)
from cookhouse.errors import CookhouseError
from cookhouse.server.pool.creations import Creation
from cookhouse.server.pool.departures import Departures
from cookhouse.server.pool.dispatch import Dispatch
from cookhouse.server.pool.life import LostState
from cookhouse.server.pool.meter import Meter
from cookhouse.server.pool.moves import Moves
from cookhouse.server.pool.news import News
from cookhouse.server.pool.pending import OnTokens, PendingCommand
from cookhouse.server.pool.plans import Kind, WorkerPlan
from cookhouse.server.pool.roster import Roster
from cookhouse.server.pool.weights import Weights
from cookhouse.server.pool.worker_handle import MakeWorker, WorkerHandle
from cookhouse.server.refusals import LostError, error_of

_log = logging.getLogger(__name__)
_MOVES = "moves"


class Pool:
    def __init__(
        self,
        make_worker: MakeWorker,
        meter: Meter,
        *,
        plans: Sequence[WorkerPlan] = (WorkerPlan(),),
        folder: Path | None = None,
        max_file_bytes: int = 2**33,
        max_losses: int = 3,
        on_lost: Callable[[LostState], None] = lambda _gone: None,
    ) -> None:
        """`make_worker` is called in the event loop's thread, for each of `plans`; `on_lost` is told what went with a
        worker, before its calls fail: what it sends goes to others or to the next one, and what it expects will come
        there. `folder` is where weights lie on their way between workers, and `max_file_bytes` what they may take
        there; needed for several. `max_losses`: workers that may end under one sample, which may be what ends them.
        """
        self._make_worker = make_worker
        self._meter = meter
        self.room_news = News()
        """Told when a worker may have room that had none."""
        self._roster = Roster(
            plans,
            self._member,
            lambda member: self._departures.remove(member),
            lambda member, seconds: self._departures.end(member, seconds),
        )
        self.workers = self._roster.workers
        self._calls: dict[str, PendingCommand] = {}
        """All that have no answer, also those that are with no worker yet."""
        self._weights = Weights(None if folder is None else Moves(folder / _MOVES, max_file_bytes))
        self._dispatch = Dispatch(self._roster, self._weights, self._calls, ask=self.ask, sampled=self.sampled)
        self._placement, self._creations = self._dispatch.placement, self._dispatch.creations
        self._transfers, self._shapes = self._dispatch.transfers, self._dispatch.shapes
        self._departures = Departures(
            self._roster, self._dispatch, self._calls, folder=folder, max_losses=max_losses, on_lost=on_lost
        )

    @property
    def is_up(self) -> bool:
        """Whether there are workers that take commands, to train and to sample."""
        return self._roster.is_up

    async def open(self) -> Up:
        """See `Roster`."""
        return await self._roster.open()

    async def close(self, seconds: float) -> bool:
        """See `Roster`."""
        return await self._roster.close(seconds)

    def send(
        self, command: Command, on_tokens: OnTokens | None = None, *, spent: list[Amount] | None = None
    ) -> asyncio.Future[Output]:
        """Submit a command after those submitted before it. What the worker used that answers it is put into `spent`,
        where that is given, else it is counted.

        The future raises `InputError` where the caller is to blame, `LostError` where the worker was lost, and another
        `ServiceError` where the worker failed.
        """
        answer: asyncio.Future[Output] = asyncio.get_running_loop().create_future()
        call = PendingCommand(command=command, answer=answer, on_tokens=on_tokens)
        if spent is not None:
            call.spent = spent
            call.is_counted = False
        self._calls[command.command_id] = call
        waiting = self._weights.note_file(command) if isinstance(command, Fetch) else ()
        for each in (call, *waiting):
            self._dispatch.place(each)
        return answer

    def ask(self, member: WorkerHandle, command: Command) -> asyncio.Future[Output]:
        """Submit a command to one of the workers."""
        answer: asyncio.Future[Output] = asyncio.get_running_loop().create_future()
        call = self._calls[command.command_id] = PendingCommand(command=command, answer=answer)
        member.put(call)
        return answer

    def forget(self, command: Forget) -> None:
        """Submit what has no answer."""
        holders = {self._placement.worker_of(model_id) for model_id in command.model_ids}
        told = [member for member in self.workers if member in holders or member.knows(command)]
        for snapshot_id in command.snapshot_ids:
            self.give_up(snapshot_id)
            self._weights.forget(snapshot_id)
            for member in self.workers:
                member.drop(snapshot_id)
        if command.model_ids:
            self.room_news.tell()
        for model_id in command.model_ids:
            self._shapes.pop(model_id, None)
            self._drop_waiting(self._creations.end(model_id))
        for member in self._roster.down:
            for command_id in command.command_ids:
                member.withdraw(command_id)
        self._drop_waiting([call for name in command.command_ids if (call := self._calls.get(name)) is not None])
        for member in told:
            member.submit(command)
        self._placement.drop_models(command.model_ids)

    def note_file(self, fetch: Fetch) -> None:
        """Take note of a file that a worker without these weights can read them from; nobody publishes them again."""
        for call in self._weights.note_file(fetch):
            self._dispatch.place(call)

    def forget_file(self, snapshot_id: str) -> None:
        """A file of weights that no sample under way reads is going to be deleted."""
        fetch = self._weights.forget_file(snapshot_id)
        if fetch is not None:
            self._transfers.forget_copies(snapshot_id, fetch.account)

    def files(self) -> Collection[str]:
        """URLs of the files of weights that workers may read, once or again."""
        return self._weights.urls()

    def holds(self, snapshot_id: str) -> bool:
        """Whether weights are with a worker, or in a file."""
        return self._dispatch.holds(snapshot_id)

    def sampled(self) -> Collection[str]:
        """Weights that samples under way read."""
        commands = (call.command for call in self._calls.values())
        return {one.request.snapshot_id or "" for one in commands if isinstance(one, Sample)}

    def models_of(self, member: WorkerHandle) -> Sequence[str]:
        """The models that a worker has."""
        return self._placement.models_of(member)

    def expect(self, snapshot_id: str) -> None:
        """Have samples of weights that no worker has wait until they are published again, or given up."""
        if not self.holds(snapshot_id):
            self._weights.expect(snapshot_id)

    def give_up(self, snapshot_id: str) -> None:
        """Weights will not be published again; what waits for them fails."""
        for call in self._weights.come(snapshot_id):
            self._dispatch.lose(call, "the weights of this sampling client are gone")

    def add(self, kind: Kind | None = None) -> WorkerPlan:
        """Start one more worker, which is given work once it is up. Raises as `next_plan`."""
        return self._roster.add(kind)

    def leave(self, name: str) -> WorkerHandle:
        """See `Departures`."""
        return self._departures.leave(name)

    async def empty(self, member: WorkerHandle, seconds: float) -> None:
        """See `Departures`."""
        await self._departures.empty(member, seconds)

    def stop_balancing(self) -> None:
        """Have models stay where they are: the server is about to end."""
        self._departures.is_closing = True

    def should_move(self, model_id: str, num_bytes: int) -> bool:
        """See `Departures`."""
        return self._departures.should_move(model_id, num_bytes)

    async def published(self, model_id: str) -> None:
        """See `Departures`."""
        await self._departures.published(model_id)

    def balance(self, model_id: str, num_bytes: int) -> None:
        """See `Departures`."""
        self._departures.balance(model_id, num_bytes)

    def _member(self, plan: WorkerPlan) -> WorkerHandle:
        return WorkerHandle(
            plan,
            self._make_worker,
            take=self._take,
            on_lost=lambda member, reason: self._departures.note_lost(member, reason),
            on_tried=lambda _member: self._place_again(),
            is_alone=lambda: len(self.workers) == 1,
        )

    def _place_again(self) -> None:
        """A worker is up, or could not be started: what waits for those that are not up is done by those that are."""
        for member in self._roster.down if self._roster.anyone.is_up else ():
            calls, forgets = member.recall()
            model_ids = self._placement.models_of(member)
            self._placement.forget(member)
            behind = [call for model_id in model_ids for call in self._creations.end(model_id)]
            for call in (*calls, *behind):
                self._dispatch.place(call)
            for command in forgets:
                self.forget(command)
        self.room_news.tell()

    def _take(self, member: WorkerHandle, event: Event) -> None:
        match event:
            case Done(command_id=command_id, output=output):
                call = self._pop(member, command_id)
                if call is not None:
                    self._settle(call)
                    call.finish(output)
            case Failed(command_id=command_id, failure=failure):
                if failure.details:
                    _log.error("%s failed: %s", member.in_words, failure.details)
                self._fail(member, command_id, error_of(failure))
            case Tokens(command_id=command_id, output=output):
                if command_id in member.commands:
                    member.commands[command_id].tell(output)
            case Spent(amounts=amounts):
                self._note_spent(member, amounts)
            case Room():
                member.note_room(event)
                self.room_news.tell()
            case Evicted(snapshot_id=snapshot_id):
                self._note_evicted(member, snapshot_id)

    def _note_spent(self, member: WorkerHandle, amounts: Sequence[Amount]) -> None:
        """Put what was used to its command: only the worker that answers one is counted. The rest counts at once."""
        self._meter.recent.count(amounts)
        self._meter.count([amount for amount in amounts if not amount.command_id])
        for amount in amounts:
            if amount.command_id in member.commands:
                member.commands[amount.command_id].spent.append(amount)

    def _count(self, call: PendingCommand) -> None:
        if call.is_counted:
            self._meter.count(call.spent)

    def _pop(self, member: WorkerHandle, command_id: str) -> PendingCommand | None:
        call = member.pop(command_id)
        if call is not None:
            self._calls.pop(command_id, None)
            self._count(call)
            if isinstance(call.command, ModelCommand):
                self._placement.note_use(call.command.model_id)
        return call

    def _settle(self, call: PendingCommand) -> None:
        """What was to make a model has made it, or has failed: what came behind it follows."""
        if not isinstance(call.command, Create | Load):
            return
        for behind in self._creations.end(call.command.model_id):
            self._dispatch.place(behind)

    def _fail(self, member: WorkerHandle, command_id: str, error: CookhouseError) -> None:
        call = member.pop(command_id)
        if call is None:
            return
        if isinstance(call.command, Save) and isinstance(error, CanceledError):
            error = self._why_canceled(member, call.command, error)
        if isinstance(error, NoMemoryError):
            member.note_refusal(call.command)
        if isinstance(call.command, Sample) and isinstance(error, NoMemoryError) and len(self.workers) > 1:
            call.refusals[member.name] = str(error)
            self._dispatch.place(call)
            return
        if isinstance(error, DamagedError) and self._dispatch.has_whole(call, member):
            self._dispatch.place(call)
            return
        if isinstance(call.command, Create | Load):
            then = self._creations.next(call.command.model_id, member, error)
            if isinstance(then, WorkerHandle):
                _log.info("%s cannot take %s: %s", member.name, call.command.model_id, error)
                if not isinstance(error, NoMemoryError):
                    member.cannot_load.add(call.command.base_model)
                self._placement.put_model(call.command.model_id, then)
                then.put(call)
                return
            if isinstance(then, Creation):
                error = call.refusal()
            if call.makes_model:
                self._placement.drop_models([call.command.model_id])
        self._calls.pop(command_id, None)
        self._settle(call)
        self._count(call)
        call.fail(error)

    def _why_canceled(self, member: WorkerHandle, command: Save, error: CanceledError) -> CookhouseError:
        """A worker forgets a model with which others go on: what it was to write has to be asked of these."""
        if member.is_draining:
            return LostError(f"the engine was lost: {member.name} has left")
        if command.model_id in self._shapes:
            return LostError(f"the engine was lost: {command.model_id} has moved to another worker")
        return error

    def _note_evicted(self, member: WorkerHandle, snapshot_id: str) -> None:
        _log.info("weights of a sampling client were dropped: %s", snapshot_id)
        is_elsewhere = any(snapshot_id in one.snapshots for one in self.workers if one is not member)
        if is_elsewhere or self._weights.fetch(snapshot_id) is not None:
            member.note_dropped(snapshot_id)

    def _drop_waiting(self, calls: Sequence[PendingCommand]) -> None:
        """Cancel those that no worker has."""
        for call in calls:
            if call.worker is None and self._calls.pop(call.command.command_id, None) is not None:
                call.fail(CanceledError(f"{call.command.command_id} was canceled"))
