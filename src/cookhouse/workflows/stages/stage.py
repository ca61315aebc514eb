"""A stage: a named async function over a run's state that says what it reads and writes, and which ports it needs."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from cookhouse.callables.arguments import checked

S = TypeVar("S")
S_contra = TypeVar("S_contra", contravariant=True)


@checked
@dataclass(frozen=True, kw_only=True)
class Stage(Generic[S_contra]):
    """One named step of a workflow. `reads` and `writes` name fields of the state."""

    name: str
    run: Callable[[S_contra], Awaitable[None]]
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    """Ports, such as `service`, that have to be there before anything runs."""
    uses: tuple[str, ...] = ()
    """Ports that it does without where they are not there."""
    leaves_files: bool = False
    """Whether it makes files; a dry run ends before it, as before one that needs a port."""
    when: Callable[[S_contra], bool] | None = None
    """Runs only where this says so, and then others cannot count on what it writes; None: always."""
    doing: str = ""
    """What a terminal says while it runs, as in `reading the data`; nothing: its name as words."""

    @property
    def progress(self) -> str:
        """Description of the stage's work, in words."""
        return self.doing or self.name.replace("_", " ")

    @property
    def is_optional(self) -> bool:
        """True if it may be passed over."""
        return self.when is not None


@checked
@dataclass(frozen=True, kw_only=True)
class SlotStage(Generic[S_contra]):
    """Stage that fills one slot of the training loop, made from the state when the loop begins."""

    name: str
    make: Callable[[S_contra], Any]
    """Makes what the slot of `cookhouse.training.LoopSlots` holds; the type is the slot's."""
    reads: tuple[str, ...] = ()
    is_optional: bool = False
    """Whether it runs at some steps only."""
    parts: tuple[str, ...] = ()
    """Spans within it that a person may look for, in their order."""


@checked
def stage(
    *,
    reads: tuple[str, ...] = (),
    writes: tuple[str, ...] = (),
    needs: tuple[str, ...] = (),
    uses: tuple[str, ...] = (),
    leaves_files: bool = False,
    when: Callable[[Any], bool] | None = None,
    doing: str = "",
) -> Callable[[Callable[[S], Awaitable[None]]], Stage[S]]:
    """Makes a stage of an async function, under the function's name."""

    def wrap(function: Callable[[S], Awaitable[None]]) -> Stage[S]:
        name = function.__name__
        return Stage(
            name=name,
            run=function,
            reads=reads,
            writes=writes,
            needs=needs,
            uses=uses,
            leaves_files=leaves_files,
            when=when,
            doing=doing,
        )

    return wrap
