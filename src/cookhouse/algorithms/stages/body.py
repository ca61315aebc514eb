"""The body of a workflow, between its setup and its end: one training loop, or stages alone, or other runs in order."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from cookhouse.algorithms.stages.execution import execute_all
from cookhouse.algorithms.stages.stage import Stage
from cookhouse.errors import InputError


async def _nothing(state: Any) -> None:
    del state


@dataclass(frozen=True, kw_only=True)
class Body:
    """The middle of a workflow. Made by `training_loop`, `stages_in_order`, or of other runs."""

    title: str
    """In the tree that `describe` prints."""
    run: Callable[[Sequence[Stage], Any], Awaitable[bool]]
    """Runs the parts over a state; the result is False if the run was interrupted."""
    prepare: Callable[[Any], Awaitable[None]] = _nothing
    """Prepares what the stages before it have not, such as other runs; it leaves no files and asks no service."""
    parts: tuple[Stage, ...] = ()
    """Stages, in the order in which they run."""
    children: tuple[str, ...] = ()
    """Names of the runs that it consists of, if it does."""
    reads: tuple[str, ...] = ()
    """Fields of the state that it reads, besides those of its parts."""
    writes: tuple[str, ...] = ()
    """Fields of the state that it writes, besides those of its parts."""

    def with_parts(self, name: str, instead: Sequence[Stage]) -> "Body":
        """The body with other parts in the place of the one of that name. Raises `InputError` where they cannot be."""
        old = next(part for part in self.parts if part.name == name)
        if old.is_slot and not (len(instead) == 1 and instead[0].is_slot):
            raise InputError(
                f"{name} is a slot of the loop: put another slot in its place, a plain function, one for one"
            )
        if not old.is_slot and any(part.is_slot for part in instead):
            raise InputError(f"there is no loop at {name}: a stage there must be an async function")
        return replace(self, parts=spliced(self.parts, name, instead))


def spliced(stages: Sequence[Stage], name: str, instead: Sequence[Stage]) -> tuple[Stage, ...]:
    """The stages with others in the place of the one of that name, if it is among them."""
    return tuple(other for each in stages for other in (instead if each.name == name else (each,)))


def stages_in_order(*parts: Stage) -> Body:
    """A body of stages one after another, such as those of an evaluation."""
    return Body(title="stages", parts=parts, run=execute_all)
