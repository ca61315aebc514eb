"""Commands under way at the workers of a server, and who waits for each. Lives on the event loop.

    send ──► Placement ──► Member ──► worker ── events ──► the future of each command
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
    Account,
    Amount,
    CanceledError,
    Command,
    Create,
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
    SaveSnapshot,
    Spent,
    Tokens,
    Up,
)
from cookhouse.errors import CookhouseError
from cookhouse.server.refusals import LostError, error_of
from cookhouse.server.sequencer.dispatch import Dispatch
from cookhouse.server.sequencer.meter import Meter
from cookhouse.server.workers.call import Call, OnTokens
from cookhouse.server.workers.creations import Creation
from cookhouse.server.workers.leaving import Gone, leaver
from cookhouse.server.workers.leftovers import delete
from cookhouse.server.workers.member import MakeWorker, Member
from cookhouse.server.workers.moves import Moves
from cookhouse.server.workers.news import News
from cookhouse.server.workers.plans import Kind, WorkerPlan
from cookhouse.server.workers.roster import Roster
from cookhouse.server.workers.weights import Weights

_log = logging.getLogger(__name__)
_LOOK_SECONDS = 0.05
_LEAVE_SECONDS = 1.0
"""For a worker to end that has nothing left to do, or no more time for it."""
_MOVES = "moves"


class Calls:
    def __init__(
        self,
        make_worker: MakeWorker,
        meter: Meter,
        *,
        plans: Sequence[WorkerPlan] = (WorkerPlan(),),
        folder: Path | None = None,
        max_file_bytes: int = 2**33,
        max_losses: int = 3,
        on_lost: Callable[[Gone], None] = lambda _gone: None,
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
        self._max_losses = max_losses
        self._on_lost = on_lost
        self._folder = folder
        self._roster = Roster(plans, self._member, self._remove, self._end)
        self.members = self._roster.members
        self._calls: dict[str, Call] = {}
        """All that have no answer, also those that are with no worker yet."""
        self._weights = Weights(None if folder is None else Moves(folder / _MOVES, max_file_bytes))
        self._dispatch = Dispatch(self._roster, self._weights, self._calls, ask=self.ask, sampled=self.sampled)
        self._placement, self._creations = self._dispatch.placement, self._dispatch.creations
        self._transfers, self._shapes = self._dispatch.transfers, self._dispatch.shapes

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
        call = Call(command=command, answer=answer, on_tokens=on_tokens)
        if spent is not None:
            call.spent = spent
            call.is_counted = False
        self._calls[command.command_id] = call
        waiting = self._weights.note_file(command) if isinstance(command, Fetch) else ()
        for each in (call, *waiting):
            self._dispatch.place(each)
        return answer

    def ask(self, member: Member, command: Command) -> asyncio.Future[Output]:
        """Submit a command to one of the workers."""
        answer: asyncio.Future[Output] = asyncio.get_running_loop().create_future()
        call = self._calls[command.command_id] = Call(command=command, answer=answer)
        member.put(call)
        return answer

    def forget(self, command: Forget) -> None:
        """Submit what has no answer."""
        holders = {self._placement.member_of(model_id) for model_id in command.model_ids}
        told = [member for member in self.members if member in holders or member.knows(command)]
        for snapshot_id in command.snapshot_ids:
            self.give_up(snapshot_id)
            self._weights.forget(snapshot_id)
            for member in self.members:
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

    def models_of(self, member: Member) -> Sequence[str]:
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

    def leave(self, name: str) -> Member:
        """Give a worker nothing new from now on; `empty` it then.

        Raises:
            InputError: there is no such worker, or none beside it that trains, or samples.
        """
        member = leaver(self.members, name)
        member.is_leaving = True
        return member

    async def empty(self, member: Member, seconds: float) -> None:
        """Have others go on with the models of a worker that leaves, and end it when its samples are drawn and files
        written, or after so many seconds; what is left then is drawn again by others, and deleted.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        await self._transfers.rescue(member, deadline)
        model_ids = self._placement.models_of(member)
        of_models = [call for call in member.calls.values() if isinstance(call.command, ModelCommand)]
        left = [call for call in of_models if not isinstance(call.command, Save)]
        self._depart(member, self._left_behind(member), left)
        member.submit(Forget(command_id="", account=Account("", ""), model_ids=tuple(model_ids)))
        while member.calls and loop.time() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(_LOOK_SECONDS)
        self._remove(member)
        await self._end(member, max(_LEAVE_SECONDS, deadline - loop.time()))

    def _left_behind(self, member: Member) -> Gone:
        """What goes with a worker that leaves."""
        return Gone(
            reason=f"{member.name} has left",
            model_ids=self._placement.models_of(member),
            snapshot_ids=self._weights.only_at(member, self._roster.staying),
            is_loss=False,
        )

    def _remove(self, member: Member) -> None:
        """A worker has left, or was never up: others do what is left. Of one that is gone already nothing is."""
        if member not in self.members:
            return
        member.is_leaving = True
        self.members.remove(member)
        self._depart(member, self._left_behind(member), list(member.calls.values()))
        member.snapshots.clear()  # its memory goes with it

    async def _end(self, member: Member, seconds: float) -> None:
        """End a worker that was removed, and delete its folder: no other will have its name."""
        await member.close(seconds)
        if self._folder is not None:
            await asyncio.to_thread(delete, self._folder / member.plan.name)

    def _member(self, plan: WorkerPlan) -> Member:
        return Member(
            plan,
            self._make_worker,
            take=self._take,
            on_lost=self._note_lost,
            on_tried=lambda _member: self._place_again(),
            is_alone=lambda: len(self.members) == 1,
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

    def _take(self, member: Member, event: Event) -> None:
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
                if command_id in member.calls:
                    member.calls[command_id].tell(output)
            case Spent(amounts=amounts):
                self._note_spent(member, amounts)
            case Room():
                member.note_room(event)
                self.room_news.tell()
            case Evicted(snapshot_id=snapshot_id):
                self._note_evicted(member, snapshot_id)

    def _note_spent(self, member: Member, amounts: Sequence[Amount]) -> None:
        """Put what was used to its command: only the worker that answers one is counted. The rest counts at once."""
        self._meter.recent.count(amounts)
        self._meter.count([amount for amount in amounts if not amount.command_id])
        for amount in amounts:
            if amount.command_id in member.calls:
                member.calls[amount.command_id].spent.append(amount)

    def _count(self, call: Call) -> None:
        if call.is_counted:
            self._meter.count(call.spent)

    def _pop(self, member: Member, command_id: str) -> Call | None:
        call = member.pop(command_id)
        if call is not None:
            self._calls.pop(command_id, None)
            self._count(call)
        return call

    def _settle(self, call: Call) -> None:
        """What was to make a model has made it, or has failed: what came behind it follows."""
        if not isinstance(call.command, Create | Load):
            return
        for behind in self._creations.end(call.command.model_id):
            self._dispatch.place(behind)

    def _fail(self, member: Member, command_id: str, error: CookhouseError) -> None:
        call = member.pop(command_id)
        if call is None:
            return
        if member.is_leaving and isinstance(call.command, Save) and isinstance(error, CanceledError):
            # With its model, which others go on with.
            error = LostError(f"the engine was lost: {member.name} has left")
        if isinstance(error, NoMemoryError):
            member.note_refusal(call.command)
        if isinstance(call.command, Sample) and isinstance(error, NoMemoryError) and len(self.members) > 1:
            call.refusals[member.name] = str(error)
            self._dispatch.place(call)
            return
        if isinstance(call.command, Create | Load):
            then = self._creations.next(call.command.model_id, member, error)
            if isinstance(then, Member):
                _log.info("%s has no room for %s: %s", member.name, call.command.model_id, error)
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

    def _note_evicted(self, member: Member, snapshot_id: str) -> None:
        _log.info("weights of a sampling client were dropped: %s", snapshot_id)
        is_elsewhere = any(snapshot_id in one.snapshots for one in self.members if one is not member)
        if is_elsewhere or self._weights.fetch(snapshot_id) is not None:
            member.note_dropped(snapshot_id)

    def _note_lost(self, member: Member, reason: str) -> None:
        """Fail what cannot be done again, and submit the rest to other workers, or the next one."""
        for call in member.calls.values():
            call.num_losses += 1
        for call in self._calls.values():  # the next one may have room
            call.refusals.pop(member.name, None)
        gone = Gone(
            reason=reason,
            model_ids=self._placement.models_of(member),
            snapshot_ids=self._weights.only_at(member, self.members),
        )
        member.snapshots, member.fetched, member.evicted = set(), set(), set()
        self._depart(member, gone, list(member.calls.values()))

    def _depart(self, member: Member, gone: Gone, left: Sequence[Call]) -> None:
        """Take models and calls from a worker."""
        self._placement.forget(member)
        behind = [call for model_id in gone.model_ids for call in self._creations.end(model_id)]
        if not gone.is_loss:
            member.snapshots -= set(gone.snapshot_ids)
        self._on_lost(gone)
        for call in left:
            member.pop(call.command.command_id)
            if isinstance(call.command, Save | SaveSnapshot):
                member.unanswered.append(call.command.url)
        again: list[Call] = []
        over: list[Call] = []
        for call in left:
            (again if self._can_be_repeated(call) else over).append(call)
        for call in (*over, *behind):
            self._dispatch.lose(call, f"the engine was lost: {gone.reason}")
        for call in sorted(again, key=lambda call: isinstance(call.command, Sample)):
            call.streamed.begin_again()
            call.spent.clear()
            self._dispatch.place(call)

    def _can_be_repeated(self, call: Call) -> bool:
        """Whether another worker answers it as this one would: what it needs is in files, or in a base model."""
        command = call.command
        if call.num_losses >= self._max_losses:
            return False
        if isinstance(command, Sample):
            return command.request.snapshot_id is None or self._dispatch.can_come(command.request.snapshot_id)
        return isinstance(command, Fetch)

    def _drop_waiting(self, calls: Sequence[Call]) -> None:
        """Cancel those that no worker has."""
        for call in calls:
            if call.worker is None and self._calls.pop(call.command.command_id, None) is not None:
                call.fail(CanceledError(f"{call.command.command_id} was canceled"))
