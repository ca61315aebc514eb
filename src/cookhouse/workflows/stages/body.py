"""The body of a workflow, between its setup and its end: one training loop, or stages alone, or other runs in order."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from cookhouse.callables.arguments import checked
from cookhouse.errors import InputError
from cookhouse.runs import RunFolder, RunResult
from cookhouse.settings import StepSettings
from cookhouse.training import (
    BestWeights,
    LoopOutcome,
    LoopSlots,
    RollingSaves,
    SlotNames,
    TrainingLoop,
    TrainingSession,
)
from cookhouse.weights.checkpoints import CheckpointFile
from cookhouse.workflows.stages.execution import execute_all
from cookhouse.workflows.stages.stage import S, S_contra, SlotStage, Stage
from cookhouse.workflows.stages.state import RunState


class Body(Protocol[S_contra]):
    """The middle of a workflow."""

    @property
    def title(self) -> str:
        """In the tree that `describe` prints."""

    @property
    def reads(self) -> tuple[str, ...]:
        """Fields of the state that it reads, besides those that its parts read."""

    @property
    def writes(self) -> tuple[str, ...]:
        """Fields of the state that are there afterwards, besides those that its parts write."""

    @property
    def parts(self) -> Sequence[Stage[Any] | SlotStage[Any]]:
        """Stages, in the order in which they run."""

    @property
    def children(self) -> Sequence[str]:
        """Names of the runs that it consists of, if it does."""

    def with_parts(self, name: str, instead: Sequence[Stage[Any] | SlotStage[Any]]) -> "Body[S_contra]":
        """The body with other parts in the place of the one of that name. Raises `InputError` where they cannot be."""

    async def prepare(self, state: S_contra) -> None:
        """See to what it needs besides the stages before it; as `prepare` of a run, which calls it last."""

    async def run(self, state: S_contra) -> bool:
        """Do it; whether it came to its end, and was not interrupted."""


def spliced(stages: Sequence[Stage[S]], name: str, instead: Sequence[Stage[S]]) -> tuple[Stage[S], ...]:
    """The stages with others in the place of the one of that name, if it is among them."""
    return tuple(other for each in stages for other in (instead if each.name == name else (each,)))


@dataclass(kw_only=True)
class LoopState(RunState):
    """State from which the loop is made."""

    config: StepSettings
    folder: RunFolder = field(init=False)
    session: TrainingSession = field(init=False)
    checkpoints: CheckpointFile = field(init=False)
    total_steps: int = field(init=False)
    outcome: LoopOutcome = field(init=False)
    """Written by the loop."""
    best: BestWeights | None = None
    """Written by the loop: the choice of the best weights, of a run that keeps them."""


L = TypeVar("L", bound=LoopState)


@checked
@dataclass(frozen=True, kw_only=True)
class Loop(Generic[L]):
    """The training loop's slots, filled with stages. Listed in the order in which a step passes through them."""

    get_work: SlotStage[L]
    forward_backward: SlotStage[L]
    optim_step: SlotStage[L]
    log: SlotStage[L]
    keep: SlotStage[L] | None = None
    checkpoint: SlotStage[L]
    evaluate: SlotStage[L]
    look_back: SlotStage[L] | None = None
    publish: SlotStage[L] | None = None
    save_every: Callable[[L], int]
    best: Callable[[L], BestWeights | None] = lambda _: None
    """Makes the choice of the best weights, of runs that may keep them."""
    title: str = "loop"
    reads: tuple[str, ...] = ("config", "folder", "session", "checkpoints", "total_steps")
    writes: tuple[str, ...] = ("best", "outcome")
    children: tuple[str, ...] = ()

    @property
    def parts(self) -> Sequence[SlotStage[L]]:
        return tuple(self.slots().values())

    def with_parts(self, name: str, instead: Sequence[Stage[Any] | SlotStage[Any]]) -> "Loop[L]":
        if len(instead) != 1 or not isinstance(instead[0], SlotStage):
            raise InputError(f"{name} is a slot of the loop: put another SlotStage in its place, one for one")
        by_slot: dict[str, Any] = {slot: instead[0] for slot, old in self.slots().items() if old.name == name}
        return replace(self, **by_slot)

    async def prepare(self, state: L) -> None:
        """The stages before it have seen to all."""

    async def run(self, state: L) -> bool:
        await asyncio.to_thread(state.folder.begin)
        state.best = self.best(state)
        slots = self.slots()
        named = {slot.name for slot in fields(SlotNames)}
        loop: TrainingLoop[Any] = TrainingLoop(
            client=state.session.client,
            slots=LoopSlots(**{name: stage.make(state) for name, stage in slots.items()}),
            names=SlotNames(**{name: stage.name for name, stage in slots.items() if name in named}),
            save_every=self.save_every(state),
            rolling=RollingSaves(state.config, state.session.service, state.checkpoints),
            best=state.best,
            total_steps=state.total_steps,
            pause_at=state.config.pause_at_step,
            checkpoints=state.checkpoints,
            telemetry=state.telemetry,
            interrupt=state.interrupt,
        )
        state.outcome = await loop.run()
        return not (state.outcome.is_interrupted or state.outcome.is_paused)

    def slots(self) -> dict[str, SlotStage[L]]:
        """Stages of the slots of `LoopSlots` that are filled."""
        filled = {slot.name: getattr(self, slot.name) for slot in fields(self)}
        return {name: stage for name, stage in filled.items() if isinstance(stage, SlotStage)}


@checked
@dataclass(frozen=True, kw_only=True)
class Stages(Generic[S]):
    """Stages one after another, such as those of an evaluation."""

    parts: tuple[Stage[S], ...]
    title: str = "stages"
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    children: tuple[str, ...] = ()

    def with_parts(self, name: str, instead: Sequence[Stage[Any] | SlotStage[Any]]) -> "Stages[S]":
        stages = [each for each in instead if isinstance(each, Stage)]
        if len(stages) < len(instead):
            raise InputError(f"there is no loop at {name}: a SlotStage is not allowed there")
        return replace(self, parts=spliced(self.parts, name, stages))

    async def prepare(self, state: S) -> None:
        """The stages before it have seen to all."""

    async def run(self, state: S) -> bool:
        assert isinstance(state, RunState)
        return await execute_all(self.parts, state)


@dataclass(kw_only=True)
class PipelineState(RunState):
    """Results of child runs."""

    folder: RunFolder = field(init=False)
    path: Path = field(init=False)
    """Folder of the run; each child has one below it."""
    results: dict[str, RunResult[Any]] = field(default_factory=dict)
    """Of the children that are over, by name."""


Q = TypeVar("Q", bound=PipelineState)


@dataclass(frozen=True, kw_only=True)
class Child(Generic[Q]):
    """A run within a run: a folder of its own below its parent's, and skipped when it has finished before."""

    name: str
    run: Callable[[Q, Path], Awaitable[RunResult[Any]]]
    """Runs it in a folder, or goes on with it there, or reads what it left; of the results so far."""
    prepare: Callable[[Q, Path], Awaitable[None]]
    """See to what it needs, as `prepare` of a run."""


@dataclass(frozen=True, kw_only=True)
class Children(Generic[Q]):
    """Other runs in order; each may take what those before it left."""

    runs: tuple[Child[Q], ...]
    title: str = "runs"
    reads: tuple[str, ...] = ("folder", "path")
    writes: tuple[str, ...] = ("results",)
    parts: tuple[Stage[Q], ...] = ()

    @property
    def children(self) -> Sequence[str]:
        return tuple(child.name for child in self.runs)

    def with_parts(self, name: str, instead: Sequence[Stage[Any] | SlotStage[Any]]) -> "Children[Q]":
        del instead
        raise InputError(f"{name} is no stage of this workflow, which consists of other runs")

    async def prepare(self, state: Q) -> None:
        """Of the runs, those that take nothing from others: of what these leave, nothing is there."""
        for child in self.runs:
            await child.prepare(state, state.context.folder.path / child.name)

    async def run(self, state: Q) -> bool:
        for child in self.runs:
            if state.results and state.interrupt.is_requested:
                return False
            state.results[child.name] = await child.run(state, state.path / child.name)
            await asyncio.to_thread(state.folder.begin)
            if state.results[child.name].summary.is_interrupted:
                return False
        return True
