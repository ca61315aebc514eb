"""Workers that say what a test has them say, several behind one server."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from cookhouse.engine.contract import (
    Account,
    AdamStep,
    Command,
    Create,
    Done,
    Event,
    Failed,
    Failure,
    Forget,
    LoraSpec,
    Lost,
    Publish,
    Room,
    Sample,
    SampledSequence,
    SampleOutput,
    SampleRequest,
    Save,
    Saved,
    SaveSnapshot,
    Step,
    Tokens,
    Up,
)
from cookhouse.server.pool.meter import Meter
from cookhouse.server.pool.plans import WorkerPlan, plans_of
from cookhouse.server.pool.supervisor import Supervisor

ACCOUNT = Account("me", "s")
ROOM = Room(free_bytes=2**30, base_models=("b",))
"""Of each at first: the base model of all tests is loaded."""


class ScriptedWorker:
    """Remembers commands, and tells what `tell` is given."""

    def __init__(self, plan: WorkerPlan) -> None:
        self.commands: list[Command] = []
        self._events: asyncio.Queue[Event | None] = asyncio.Queue()
        self.tell(Up(worker=plan.name, base_models=(), description="test", room=ROOM))

    def tell(self, *events: Event) -> None:
        for event in events:
            self._events.put_nowait(event)

    def submit(self, commands: Sequence[Command]) -> None:
        self.commands += commands

    async def events(self) -> Sequence[Event]:
        """All that it has told since, as workers do."""
        told = [await self._events.get()]
        while not self._events.empty() and told[-1] is not None:
            told.append(self._events.get_nowait())
        return [event for event in told if event is not None]

    async def close(self, seconds: float) -> bool:  # noqa: ARG002
        self._events.put_nowait(None)
        return True

    @property
    def kinds(self) -> list[str]:
        return [type(command).__name__ for command in self.commands]

    def ids(self, kind: type[Command]) -> list[str]:
        return [command.command_id for command in self.commands if isinstance(command, kind)]

    async def done(self, command_id: str, output: Any = None) -> None:
        self.tell(Done(command_id=command_id, output=output))
        await settle()

    async def fail(self, command_id: str, failure: Failure) -> None:
        self.tell(Failed(command_id=command_id, failure=failure))
        await settle()

    async def refuse(self, command_id: str, words: str) -> None:
        await self.fail(command_id, Failure(blame="user", kind="memory", message=words))

    async def lose(self, reason: str = "gone") -> None:
        self.tell(Lost(worker="", reason=reason))
        await settle()

    async def written(self, num_bytes: int = 10) -> None:
        """Say that the weights are written that were asked for first, and make the folder."""
        save = next(command for command in self.commands if isinstance(command, SaveSnapshot))
        self.commands.remove(save)
        _make_folder(save.url)
        await self.done(save.command_id, Saved(url=save.url, form="weights", sizes={"x": num_bytes}))


class Several:
    """A pool of scripted workers; `worker(name)` is the present one of a name."""

    def __init__(self, folder: Path, *, workers: int | None = None, apart: tuple[int, int] = (0, 0), **options: Any):
        plans = plans_of(workers=workers, trainers=apart[0] or None, samplers=apart[1] or None)
        self._workers: dict[str, ScriptedWorker] = {}
        self.cannot_start: dict[str, Exception] = {}
        """By name, what is raised where a worker is to be made."""
        self.supervisor = Supervisor(self._make, Meter(), plans=plans, folder=folder, **options)
        self.pool = self.supervisor.pool

    def _make(self, plan: WorkerPlan) -> ScriptedWorker:
        if plan.name in self.cannot_start:
            raise self.cannot_start[plan.name]
        self._workers[plan.name] = ScriptedWorker(plan)
        return self._workers[plan.name]

    def worker(self, name: str) -> ScriptedWorker:
        return self._workers[name]

    async def __aenter__(self) -> "Several":
        await self.supervisor.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.supervisor.close(1.0)

    async def drain(self, name: str, seconds: float) -> None:
        await self.supervisor.drain(self.supervisor.begin_drain(name), seconds)

    async def model(self, model_id: str) -> str:
        """Make a model; the worker that it is on."""
        answer = self.pool.send(create(model_id))
        await settle()
        name = next(name for name, one in self._workers.items() if f"create {model_id}" in one.ids(Create))
        await self.worker(name).done(f"create {model_id}")
        await answer
        return name

    async def publish(self, model_id: str, snapshot_id: str) -> None:
        answer = self.pool.send(publish(model_id, snapshot_id))
        await settle()
        holder = next(one for one in self._workers.values() if f"publish {snapshot_id}" in one.ids(Publish))
        await holder.done(f"publish {snapshot_id}")
        await answer


def _make_folder(url: str) -> None:
    Path(url.removeprefix("file://")).mkdir()


async def settle() -> None:
    for _ in range(30):
        await asyncio.sleep(0)


def create(model_id: str) -> Create:
    name = f"create {model_id}"
    return Create(command_id=name, account=ACCOUNT, model_id=model_id, base_model="b", lora=LoraSpec())


def step(command_id: str, model_id: str) -> Step:
    return Step(command_id=command_id, account=ACCOUNT, model_id=model_id, adam=AdamStep(learning_rate=0.1))


def save(command_id: str, model_id: str, url: str) -> Save:
    return Save(command_id=command_id, account=ACCOUNT, model_id=model_id, url=url, form="state")


def publish(model_id: str, snapshot_id: str) -> Publish:
    name = f"publish {snapshot_id}"
    return Publish(command_id=name, account=ACCOUNT, model_id=model_id, snapshot_id=snapshot_id)


def request(
    request_id: str = "", snapshot_id: str | None = None, prompt: Sequence[int] = (1,), max_tokens: int = 10
) -> SampleRequest:
    return SampleRequest(
        request_id=request_id,
        base_model="b",
        snapshot_id=snapshot_id,
        prompt_T=np.array(prompt),
        seed=7,
        max_tokens=max_tokens,
    )


def sample(request_id: str, snapshot_id: str | None = None, **options: Any) -> Sample:
    return Sample(command_id=request_id, account=ACCOUNT, request=request(request_id, snapshot_id, **options))


def drawn(request_id: str) -> SampleOutput:
    return SampleOutput(request_id=request_id)


def tokens(request_id: str, *newest: int | None) -> Tokens:
    """A step, with the token that each sequence has of it, if any."""
    sequences = [
        SampledSequence(
            tokens_T=np.array([] if token is None else [token], np.int32),
            logprobs_T=np.zeros(0 if token is None else 1, np.float32),
            is_stopped=False,
        )
        for token in newest
    ]
    return Tokens(
        command_id=request_id, output=SampleOutput(request_id=request_id, is_partial=True, sequences=sequences)
    )


def forget(**what: tuple[str, ...]) -> Forget:
    return Forget(command_id="", account=ACCOUNT, **what)
