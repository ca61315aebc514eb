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
from collections.abc import Callable, Collection, Coroutine, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

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
    Publish,
    Sample,
    Save,
    SaveSnapshot,
    Spent,
    Tokens,
    Up,
)
from cookhouse.errors import CookhouseError, InputError
from cookhouse.server.refusals import LostError, error_of
from cookhouse.server.sequencer.meter import Meter
from cookhouse.server.workers.call import Call, OnTokens
from cookhouse.server.workers.creations import Creation, Creations
from cookhouse.server.workers.leaving import Gone, leaver
from cookhouse.server.workers.leftovers import delete
from cookhouse.server.workers.member import MakeWorker, Member
from cookhouse.server.workers.moves import Moves
from cookhouse.server.workers.placement import Placement
from cookhouse.server.workers.plans import Kind, WorkerPlan, next_plan
from cookhouse.server.workers.transfers import Transfers
from cookhouse.server.workers.weights import Shape, Weights

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
        self._max_losses = max_losses
        self._on_lost = on_lost
        self._folder = folder
        self.members = [self._member(plan) for plan in plans]
        self._next_index = 1 + max(plan.index for plan in plans)
        self._placement = Placement()
        self._creations = Creations()
        self._weights = Weights(None if folder is None else Moves(folder / _MOVES, max_file_bytes))
        self._transfers = Transfers(self._weights, self.members, self.ask, self._go_on, self.sampled)
        self._shapes: dict[str, Shape] = {}
        """Of models."""
        self._calls: dict[str, Call] = {}
        """All that have no answer, also those that are with no worker yet."""
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def is_up(self) -> bool:
        """Whether there are workers that take commands, to train and to sample."""
        up = [member.plan for member in self.members if member.is_up]
        can_sample = any(plan.samples for plan in up)
        return can_sample and (any(plan.trains for plan in up) or not any(one.plan.trains for one in self.members))

    async def open(self) -> Up:
        """Start the workers, and wait until they take commands; what the first one told, and what they all compute on.

        Raises:
            CookhouseError: one cannot be made, for what it says.
        """
        ups = await asyncio.gather(*(member.open() for member in self.members))
        descriptions = [up.description for up in ups]
        if len(ups) == 1:
            return ups[0]
        if len(set(descriptions)) == 1:
            return replace(ups[0], description=f"{len(ups)} workers, each {descriptions[0]}")
        each = (f"{member.name} ({words})" for member, words in zip(self.members, descriptions, strict=True))
        return replace(ups[0], description=", ".join(each))

    async def close(self, seconds: float) -> bool:
        """End the workers after their present turns; False if that takes longer than `seconds`."""
        for task in self._tasks:
            task.cancel()
        return all(await asyncio.gather(*(member.close(seconds) for member in self.members)))

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
            self._place(each)
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
        for model_id in command.model_ids:
            self._shapes.pop(model_id, None)
            self._drop_waiting(self._creations.end(model_id))
        self._drop_waiting([call for name in command.command_ids if (call := self._calls.get(name)) is not None])
        for member in told:
            member.submit(command)
        self._placement.drop_models(command.model_ids)

    def note_file(self, fetch: Fetch) -> None:
        """Take note of a file that a worker without these weights can read them from; nobody publishes them again."""
        for call in self._weights.note_file(fetch):
            self._place(call)

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
        in_file = self._weights.fetch(snapshot_id) is not None
        return in_file or any(snapshot_id in member.snapshots for member in self.members)

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
            self._lose(call, "the weights of this sampling client are gone")

    def add(self, kind: Kind | None = None) -> WorkerPlan:
        """Start one more worker, which is given work once it is up. Raises as `next_plan`."""
        plan = next_plan([member.plan for member in self.members], self._next_index, kind)
        self._next_index += 1
        member = self._member(plan)
        self.members.append(member)
        self._begin(self._open(member))
        return plan

    async def drain(self, name: str, seconds: float) -> None:
        """Give a worker nothing new, have others go on with its models, and end it when its samples are drawn and its
        files written, or after so many seconds; what is left then is drawn again by others, and deleted.

        Raises:
            InputError: there is no such worker, or none beside it that trains, or samples.
        """
        member = leaver(self.members, name)
        member.is_leaving = True
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
        staying = [one for one in self.members if not one.is_leaving]
        return Gone(
            reason=f"{member.name} has left",
            model_ids=self._placement.models_of(member),
            snapshot_ids=self._weights.only_at(member, staying),
            is_loss=False,
        )

    def _remove(self, member: Member) -> None:
        """A worker has left, or was never up: others do what is left."""
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
        return Member(plan, self._make_worker, take=self._take, on_lost=self._note_lost)

    async def _open(self, member: Member) -> None:
        try:
            await member.open()
        except CookhouseError as error:
            if member in self.members:  # it was not drained meanwhile
                _log.error("%s could not be started: %s", member.name, error)
                self._remove(member)
                await self._end(member, _LEAVE_SECONDS)

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _place(self, call: Call) -> None:
        """Hand a call to the worker that it is for, or have it wait."""
        command = call.command
        if command.command_id not in self._calls:  # canceled while it waited
            return
        match command:
            case ModelCommand():
                self._place_in_model(call, command)
            case Sample():
                self._place_sample(call, command)
            case Fetch():
                self._place_fetch(call, command)
            case SaveSnapshot():
                if not self._creations.wait_for_weights(command.snapshot_id, call):
                    (self._weights.holder(command.snapshot_id, self.members) or self.members[0]).put(call)
            case _:
                next((member for member in self.members if member.is_up), self.members[0]).put(call)

    def _place_in_model(self, call: Call, command: ModelCommand) -> None:
        model_id = command.model_id
        if self._creations.wait(model_id, call):
            return
        if isinstance(command, Create | Load):
            self._shapes[model_id] = Shape(command.account, command.base_model, command.lora)
        member = self._placement.member_of(model_id)
        if member is None:
            members = self._placement.for_model(self.members) or self.members
            member = members[0]
            if isinstance(command, Create | Load):
                self._creations.begin(model_id, call, members)
                self._placement.put_model(model_id, member)
        if isinstance(command, Publish):
            self._publish(member, call, command)
        else:
            member.put(call)

    def _publish(self, member: Member, call: Call, command: Publish) -> None:
        snapshot_id = command.snapshot_id
        if command.model_id in self._shapes:
            self._weights.note_published(snapshot_id, self._shapes[command.model_id], member, command.model_id)
        if snapshot_id in member.snapshots:
            # A replay, at a worker that fetched these weights from the one that was lost.
            self._calls.pop(command.command_id)
            call.finish(None)
        else:
            member.snapshots.add(snapshot_id)
            member.fetched.discard(snapshot_id)
            member.put(call)
        for waiting in self._weights.come(snapshot_id):
            self._place(waiting)

    def _place_fetch(self, call: Call, command: Fetch) -> None:
        member = self._placement.for_fetch(self.members) or self.members[0]
        member.snapshots.add(command.snapshot_id)
        member.put(call)

    def _place_sample(self, call: Call, command: Sample) -> None:
        snapshot_id = command.request.snapshot_id
        if snapshot_id is not None and self._weights.waits(snapshot_id, call):
            return
        member = self._placement.for_sample(self._untried(call), command.request) or self.members[0]
        try:
            if snapshot_id is None or self._transfers.bring(snapshot_id, member, call):
                member.put(call)
        except LostError as error:
            self._lose(call, str(error))

    def _untried(self, call: Call) -> Sequence[Member]:
        """Workers that have not said that they have no memory for it."""
        return (
            [member for member in self.members if member.name not in call.refusals] if call.refusals else self.members
        )

    def _go_on(self, call: Call, error: BaseException | None) -> None:
        """Weights that a sample waited for were written, or could not be."""
        command = call.command
        assert isinstance(command, Sample)
        snapshot_id = command.request.snapshot_id or ""
        if error is None or (isinstance(error, LostError | InputError) and self._can_come(snapshot_id)):
            self._place(call)
        elif isinstance(error, LostError | InputError):
            self._lose(call, f"the weights of this sampling client are gone: {error}")
        elif self._calls.pop(command.command_id, None) is not None:
            assert isinstance(error, Exception)
            call.fail(error)

    def _can_come(self, snapshot_id: str) -> bool:
        return self._weights.waits(snapshot_id) or self.holds(snapshot_id)

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
        member = self._placement.member_of(call.command.model_id)
        for behind in self._creations.end(call.command.model_id):
            if member is not None:
                self._place(behind)

    def _fail(self, member: Member, command_id: str, error: CookhouseError) -> None:
        call = member.pop(command_id)
        if call is None:
            return
        if member.is_leaving and isinstance(call.command, Save) and isinstance(error, CanceledError):
            # With its model, which others go on with.
            error = LostError(f"the engine was lost: {member.name} has left")
        if isinstance(call.command, Sample) and isinstance(error, NoMemoryError) and len(self.members) > 1:
            call.refusals[member.name] = str(error)
            if any(one.plan.samples and not one.is_leaving for one in self._untried(call)):
                self._place(call)
                return
            error = call.refusal()
        if isinstance(call.command, Create | Load):
            then = self._creations.next(call.command.model_id, member, error)
            if isinstance(then, Member):
                _log.info("%s has no room for %s: %s", member.name, call.command.model_id, error)
                self._placement.put_model(call.command.model_id, then)
                then.put(call)
                return
            if isinstance(then, Creation):
                error = call.refusal()
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
            self._lose(call, f"the engine was lost: {gone.reason}")
        for call in sorted(again, key=lambda call: isinstance(call.command, Sample)):
            call.streamed.begin_again()
            call.spent.clear()
            self._place(call)

    def _can_be_repeated(self, call: Call) -> bool:
        """Whether another worker answers it as this one would: what it needs is in files, or in a base model."""
        command = call.command
        if call.num_losses >= self._max_losses:
            return False
        if isinstance(command, Sample):
            return command.request.snapshot_id is None or self._can_come(command.request.snapshot_id)
        return isinstance(command, Fetch)

    def _lose(self, call: Call, words: str) -> None:
        if self._calls.pop(call.command.command_id, None) is not None:
            call.fail(LostError(words))

    def _drop_waiting(self, calls: Sequence[Call]) -> None:
        """Cancel those that no worker has."""
        for call in calls:
            if call.worker is None and self._calls.pop(call.command.command_id, None) is not None:
                call.fail(CanceledError(f"{call.command.command_id} was canceled"))
