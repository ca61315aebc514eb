"""A workflow: stages to set up, one training loop, stages to finish; and cleanup, which always runs."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass, fields
from typing import Any, Generic

from cookhouse.errors import InputError
from cookhouse.training import LoopSlots, SlotNames
from cookhouse.workflows.stage import S, SlotStage, Stage


@dataclass(frozen=True, kw_only=True)
class LoopStages(Generic[S]):
    """The loop's slots, filled with stages. Listed in the order in which a step passes through them."""

    get_work: SlotStage[S]
    forward_backward: SlotStage[S]
    optim_step: SlotStage[S]
    log: SlotStage[S]
    checkpoint: SlotStage[S]
    evaluate: SlotStage[S]
    look_back: SlotStage[S] | None = None
    publish: SlotStage[S] | None = None

    def __iter__(self) -> Iterator[SlotStage[S]]:
        return iter(self._filled().values())

    def fill(self, state: S) -> LoopSlots:
        """Make what the loop runs."""
        return LoopSlots(**{name: stage.make(state) for name, stage in self._filled().items()})

    def names(self) -> SlotNames:
        """What the loop calls it in spans."""
        known = {slot.name for slot in fields(SlotNames)}
        return SlotNames(**{name: stage.name for name, stage in self._filled().items() if name in known})

    def _filled(self) -> dict[str, SlotStage[S]]:
        stages = {slot.name: getattr(self, slot.name) for slot in fields(self)}
        return {name: stage for name, stage in stages.items() if stage is not None}


@dataclass(frozen=True, kw_only=True)
class Workflow(Generic[S]):
    """What a recipe does, as objects: the same ones are checked, run and described."""

    name: str
    state_class: type[S]
    """A dataclass; its init fields are there from the start, the others are written by stages."""
    setup: tuple[Stage[S], ...]
    loop: LoopStages[S]
    final: tuple[Stage[S], ...]
    cleanup: Stage[S]
    """Runs last however the others ended, so it reads nothing that must have been written."""

    def check(self, ports: Collection[str]) -> None:
        """See that every stage will find what it reads, and that every port is there, before anything runs.

        Raises:
            InputError: a stage reads or writes what is not there, or needs a port that was not given.
        """
        declared: Any = self.state_class
        known = {field.name for field in fields(declared)}
        written = {field.name for field in fields(declared) if field.init}
        for stage in (*self.setup, *self.loop, *self.final, self.cleanup):
            if stage is self.final[0]:
                written |= {"outcome"}
            self._refuse(stage.name, "reads", set(stage.reads) - written, written)
            if isinstance(stage, Stage):
                self._refuse(stage.name, "writes", set(stage.writes) - known, known)
                self._refuse(stage.name, "needs the port", set(stage.needs) - set(ports), set(ports))
                written |= set(stage.writes)

    def describe(self) -> str:
        """The stages as a tree; `?` marks those that run at some steps only."""
        parts = {
            "setup": [stage.name for stage in self.setup],
            "loop": [name for slot in self.loop for name in (slot.name + "?" * slot.is_optional, *slot.parts)],
            "final": [*(stage.name for stage in self.final), self.cleanup.name],
        }
        lines = [self.name]
        for (title, names), (edge, indent) in zip(parts.items(), _edges(len(parts)), strict=True):
            lines.append(edge + title)
            lines += [indent + inner + name for name, (inner, _) in zip(names, _edges(len(names)), strict=True)]
        return "\n".join(lines)

    def _refuse(self, stage: str, verb: str, missing: set[str], allowed: set[str]) -> None:
        if missing:
            raise InputError(
                f"workflow {self.name}: stage {stage} {verb} {', '.join(sorted(missing))}, which is not there by then; "
                f"there is {', '.join(sorted(allowed)) or 'nothing'}"
            )


def _edges(count: int) -> list[tuple[str, str]]:
    """What stands before each of `count` branches, and before what hangs on it."""
    return [("├── ", "│   ")] * (count - 1) + [("└── ", "    ")]
