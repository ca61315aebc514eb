"""Commands and their answers, over a worker that says what the test has it say."""

import asyncio
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from cookhouse.engine.contract import (
    Account,
    AdamStep,
    Command,
    Create,
    Done,
    Event,
    Failed,
    Failure,
    Fetch,
    Forget,
    Logged,
    LoraSpec,
    Lost,
    Publish,
    Room,
    Sample,
    SampledSequence,
    SampleOutput,
    SampleRequest,
    Step,
    Tokens,
    Up,
)
from cookhouse.errors import InputError
from cookhouse.server.pool.meter import Meter
from cookhouse.server.pool.plans import WorkerPlan
from cookhouse.server.pool.supervisor import Supervisor
from cookhouse.server.refusals import LostError

pytestmark = pytest.mark.anyio
ACCOUNT = Account("me", "s")
UP = Up(worker="engine", base_models=(), description="test", room=Room(free_bytes=0, base_models=()))


class ScriptedWorker:
    """Remembers commands, and tells what `tell` is given."""

    def __init__(self, first: Event = UP) -> None:
        self.commands: list[Command] = []
        self._events: asyncio.Queue[Event | None] = asyncio.Queue()
        self.tell(first)

    def tell(self, *events: Event) -> None:
        for event in events:
            self._events.put_nowait(event)

    def submit(self, commands: Sequence[Command]) -> None:
        self.commands += commands

    async def events(self) -> Sequence[Event]:
        event = await self._events.get()
        return () if event is None else (event,)

    async def close(self, seconds: float) -> bool:  # noqa: ARG002
        self._events.put_nowait(None)
        return True


class Workers:
    """Makes workers, the one after the other; `firsts` is what the later ones tell first."""

    def __init__(self, *firsts: Event) -> None:
        self.made: list[ScriptedWorker] = []
        self._firsts = [UP, *firsts]

    def __call__(self, plan: WorkerPlan) -> ScriptedWorker:
        assert plan == WorkerPlan()
        first = self._firsts.pop(0) if self._firsts else UP
        self.made.append(ScriptedWorker(first))
        return self.made[-1]


def request(request_id: str, snapshot_id: str | None = None) -> SampleRequest:
    prompt_T = np.array([1])
    return SampleRequest(request_id=request_id, base_model="b", snapshot_id=snapshot_id, prompt_T=prompt_T, seed=7)


def sample(request_id: str, snapshot_id: str | None = None) -> Sample:
    return Sample(command_id=request_id, account=ACCOUNT, request=request(request_id, snapshot_id))


def step(command_id: str) -> Step:
    return Step(command_id=command_id, account=ACCOUNT, model_id="m", adam=AdamStep(learning_rate=0.1))


def fetch(command_id: str, snapshot_id: str) -> Fetch:
    options: dict[str, Any] = {"base_model": "b", "lora": LoraSpec(), "url": "file:///x"}
    return Fetch(command_id=command_id, account=ACCOUNT, snapshot_id=snapshot_id, **options)


def publish(command_id: str) -> Publish:
    return Publish(command_id=command_id, account=ACCOUNT, model_id="m", snapshot_id="unnamed")


def tokens(request_id: str, token: int) -> Tokens:
    one = SampledSequence(tokens_T=np.array([token], np.int32), logprobs_T=np.zeros(1, np.float32), is_stopped=False)
    return Tokens(command_id=request_id, output=SampleOutput(request_id=request_id, is_partial=True, sequences=[one]))


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def test_commands_go_out_in_order_and_answers_find_who_waits() -> None:
    """Would catch a step that is submitted before its pass, and an answer that goes to another."""
    make = Workers()
    supervisor = Supervisor(make, Meter())
    pool = supervisor.pool
    await supervisor.open()
    first, second = pool.send(step("1")), pool.send(step("2"))
    await settle()
    (worker,) = make.made
    assert [command.command_id for command in worker.commands] == ["1", "2"]
    failure = Failure(blame="user", kind="input", message="a bad step")
    worker.tell(Failed(command_id="2", failure=failure), Done(command_id="1", output={"grad_norm": 1.0}))
    assert await first == {"grad_norm": 1.0}
    with pytest.raises(InputError, match="a bad step"):
        await second
    await supervisor.close(1.0)


async def test_a_lost_worker_fails_its_training_and_is_replaced() -> None:
    """Would catch a client that waits for ever for what a dead engine was asked."""
    make, reasons = Workers(), list[str]()
    supervisor = Supervisor(make, Meter(), on_lost=lambda gone: reasons.append(gone.reason))
    pool = supervisor.pool
    await supervisor.open()
    training = pool.send(step("1"))
    await settle()
    make.made[0].tell(Lost(worker="engine", reason="killed by signal 9"))
    with pytest.raises(LostError, match="killed by signal 9"):
        await training
    assert reasons == ["killed by signal 9"]
    await settle()
    later = pool.send(step("2"))
    await settle()
    assert [command.command_id for command in make.made[1].commands] == ["2"]
    make.made[1].tell(Done(command_id="2", output={}))
    assert await later == {}
    await supervisor.close(1.0)


async def test_samples_in_flight_are_asked_of_the_next_worker() -> None:
    """Would catch a sample that fails with its worker, one asked without its weights, and tokens told twice."""
    make, told = Workers(), list[SampleOutput]()
    supervisor = Supervisor(make, Meter())
    pool = supervisor.pool
    await supervisor.open()
    fetching = pool.send(fetch("f", "kept"))
    await settle()
    make.made[0].tell(Done(command_id="f"))
    await fetching
    of_base, of_kept = pool.send(sample("1"), told.append), pool.send(sample("2", "kept"))
    publishing = pool.send(publish("p"))
    of_unnamed = pool.send(sample("3", "unnamed"))
    await settle()
    make.made[0].tell(tokens("1", 5), tokens("1", 6), Lost(worker="engine", reason="gone"))
    for lost in (publishing, of_unnamed):
        with pytest.raises(LostError):
            await lost
    await settle()
    again = make.made[1].commands
    assert [type(command) for command in again] == [Sample, Fetch, Sample]
    assert [one.request for one in again if isinstance(one, Sample)] == [request("1"), request("2", "kept")]
    make.made[1].tell(tokens("1", 5), tokens("1", 6), tokens("1", 7))
    for request_id in ("1", "2"):
        make.made[1].tell(Done(command_id=request_id, output=SampleOutput(request_id=request_id)))
    await of_base
    await of_kept
    assert [one.sequences[0].tokens_T.tolist() for one in told] == [[5], [6], [7]]
    await supervisor.close(1.0)


@pytest.mark.parametrize("comes", ["published", "in a file", "not"])
async def test_samples_wait_for_weights_that_are_published_again(comes: str) -> None:
    """Would catch a sample of weights that the new worker lacks yet, and one that waits for ever for those that a file
    has, or that will not come.
    """
    make = Workers()
    supervisor = Supervisor(make, Meter(), on_lost=lambda _reason: pool.expect("unnamed"))
    pool = supervisor.pool
    await supervisor.open()
    publishing = pool.send(publish("p1"))
    waiting = [pool.send(sample("1", "unnamed"))]
    await settle()
    make.made[0].tell(Lost(worker="engine", reason="gone"))
    await settle()
    with pytest.raises(LostError):
        await publishing
    waiting.append(pool.send(sample("2", "unnamed")))
    await settle()
    worker = make.made[1]
    assert worker.commands == []
    match comes:
        case "published":
            pool.send(publish("p2"))
        case "in a file":
            pool.note_file(fetch("f", "unnamed"))
        case "not":
            pool.give_up("unnamed")
    await settle()
    if comes == "not":
        for answer in waiting:
            with pytest.raises(LostError, match="gone"):
                await answer
    else:
        first = Publish if comes == "published" else Fetch
        assert [type(command) for command in worker.commands] == [first, Sample, Sample]
        worker.tell(*(Done(command_id=name, output=SampleOutput(request_id=name)) for name in ("1", "2")))
        for answer in waiting:
            assert isinstance(await answer, SampleOutput)
    await supervisor.close(1.0)


async def test_a_sample_that_ends_every_worker_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Would catch one request that takes the engine from all tenants, again and again."""
    monkeypatch.setattr("cookhouse.server.pool.worker_handle._FIRST_PAUSE_SECONDS", 0.0)
    make = Workers()
    supervisor = Supervisor(make, Meter())
    pool = supervisor.pool
    await supervisor.open()
    deadly = pool.send(sample("1"))
    for life in range(3):
        await settle()
        assert [command.command_id for command in make.made[life].commands] == ["1"]
        make.made[life].tell(Lost(worker="engine", reason="out of memory?"))
    with pytest.raises(LostError, match="out of memory"):
        await deadly
    await settle()
    assert make.made[3].commands == []
    await supervisor.close(1.0)


async def test_a_worker_that_dies_at_once_is_made_again_after_a_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """Would catch a machine that does nothing but start engines which cannot live."""
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    make = Workers()
    supervisor = Supervisor(make, Meter())
    await supervisor.open()
    with monkeypatch.context() as patched:
        patched.setattr("cookhouse.server.pool.worker_handle.asyncio.sleep", sleep)
        for life in range(4):
            make.made[life].tell(Lost(worker="engine", reason="gone"))
            await asyncio.wait_for(_made(make, life + 2), 10)
    assert pauses == [0.0, 0.5, 1.0, 2.0]
    await supervisor.close(1.0)


async def test_a_worker_that_cannot_be_made_at_all_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Would catch a machine out of memory or file handles, which leaves a server without an engine for good."""
    monkeypatch.setattr("cookhouse.server.pool.worker_handle._FIRST_PAUSE_SECONDS", 0.0)
    make, faults = Workers(), [OSError("Cannot allocate memory"), BlockingIOError("Resource temporarily unavailable")]

    def make_or_fail(plan: WorkerPlan) -> ScriptedWorker:
        if make.made and faults:
            raise faults.pop()
        return make(plan)

    supervisor = Supervisor(make_or_fail, Meter())
    pool = supervisor.pool
    await supervisor.open()
    make.made[0].tell(Lost(worker="engine", reason="gone"))
    await asyncio.wait_for(_made(make, 2), 10)
    await settle()
    assert pool.is_up
    await supervisor.close(1.0)


async def _made(make: Workers, count: int) -> None:
    loop = asyncio.get_running_loop()
    while len(make.made) < count:
        await loop.run_in_executor(None, lambda: None)


async def test_what_was_forgotten_is_not_fetched_again() -> None:
    """Would catch weights that come back to life in every new worker."""
    make = Workers()
    supervisor = Supervisor(make, Meter())
    pool = supervisor.pool
    await supervisor.open()
    pool.send(fetch("f", "kept"))
    await settle()
    make.made[0].tell(Done(command_id="f"))
    await settle()
    pool.forget(Forget(command_id="", account=ACCOUNT, snapshot_ids=("kept",)))
    await settle()
    make.made[0].tell(Lost(worker="engine", reason="gone"))
    await settle()
    answer = pool.send(sample("1", "kept"))
    await settle()
    assert [type(command) for command in make.made[1].commands] == [Sample]
    answer.cancel()
    await supervisor.close(1.0)


async def test_a_worker_that_never_comes_up_says_why() -> None:
    """Would catch a server that starts without its base model, or that says only that something failed."""
    failure = Failure(blame="user", kind="input", message="unknown base model 'nonsense'")

    def make(_plan: WorkerPlan) -> ScriptedWorker:
        return ScriptedWorker(Lost(worker="engine", reason="it has no base model", failure=failure))

    with pytest.raises(InputError, match="unknown base model 'nonsense'"):
        await Supervisor(make, Meter()).open()


async def test_commands_of_before_the_next_is_up_wait_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Would catch a new client's model that fails since the engine is just being started again."""
    monkeypatch.setattr("cookhouse.server.pool.worker_handle._FIRST_PAUSE_SECONDS", 0.0)
    make = Workers(Lost(worker="engine", reason="still no memory"))
    is_lost = asyncio.Event()
    supervisor = Supervisor(make, Meter(), on_lost=lambda _: is_lost.set())
    pool = supervisor.pool
    await supervisor.open()
    make.made[0].tell(Lost(worker="engine", reason="gone"))
    await is_lost.wait()
    create = Create(command_id="c", account=ACCOUNT, model_id="new", base_model="b", lora=LoraSpec())
    creating = pool.send(create)
    await settle()
    assert make.made[2].commands == [create]
    make.made[2].tell(Done(command_id="c"))
    assert await creating is None
    await supervisor.close(1.0)


async def test_a_worker_that_is_drained_before_it_is_up_goes(caplog: pytest.LogCaptureFixture) -> None:
    """Would catch one that ends on purpose and is told of as one that could not be started, or that stays listed."""
    made: list[ScriptedWorker] = []

    def make(_plan: WorkerPlan) -> ScriptedWorker:
        made.append(ScriptedWorker(UP if not made else Logged(name="tests", level=10, message="loading")))
        return made[-1]

    supervisor = Supervisor(make, Meter())
    pool = supervisor.pool
    await supervisor.open()
    name = supervisor.add().name
    await settle()
    await supervisor.drain(supervisor.begin_drain(name), 0.0)
    await settle()
    assert [worker.name for worker in pool.workers] == ["engine"]
    assert caplog.text == ""
    await supervisor.close(1.0)
