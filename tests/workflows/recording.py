"""Which fields of the state each stage of a workflow reads and writes while it runs, beside what it declares."""

from collections import defaultdict
from collections.abc import Awaitable, Callable
from copy import copy
from dataclasses import dataclass, field, fields, replace
from typing import Any

from cookhouse.algorithms.stages.state import RunState
from cookhouse.recipes import Recipe
from cookhouse.workflows import SlotStage, Stage, Workflow

OF_EVERY_RUN = frozenset(each.name for each in fields(RunState))
"""What every state has from the start; nobody declares it."""


@dataclass
class Touched:
    """What one stage did to the fields of the state."""

    declared_reads: frozenset[str] = frozenset()
    declared_writes: frozenset[str] = frozenset()
    looked_at: set[str] = field(default_factory=set)
    read: set[str] = field(default_factory=set)
    """Of those, the fields that it had not written itself by then."""
    written: set[str] = field(default_factory=set)

    @property
    def undeclared_reads(self) -> set[str]:
        # What a stage adds to is declared as written.
        return self.read - self.declared_reads - (self.declared_writes & self.written)

    @property
    def undeclared_writes(self) -> set[str]:
        return self.written - self.declared_writes

    @property
    def untouched(self) -> frozenset[str]:
        return (self.declared_reads - self.looked_at) | (self.declared_writes - self.written)


class Recorder:
    """Gives each stage a state of its own over the same fields, which tells what is done to them, also after the stage
    by what it has left behind.
    """

    def __init__(self) -> None:
        self.touched: dict[str, Touched] = defaultdict(Touched)
        """By the function of a stage, or by workflow and slot."""

    def recorded(self, recipe: Recipe[Any]) -> Recipe[Any]:
        """The recipe, whose runs are recorded."""
        return replace(recipe, workflow=lambda config: self._workflow(recipe.workflow(config)))

    def _workflow(self, workflow: Workflow[Any]) -> Workflow[Any]:
        body = workflow.body
        for each in body.parts:
            recorded = self._slot(workflow, each) if isinstance(each, SlotStage) else self._stage(each)
            body = body.with_parts(each.name, [recorded])
        parts = [self.touched[_name(each)] for each in workflow.body.parts if isinstance(each, Stage)]
        return replace(
            workflow,
            setup=tuple(map(self._stage, workflow.setup)),
            body=_RecordedBody(body, parts, self.touched[f"{workflow.name}.{body.title}"]),
            final=tuple(map(self._stage, workflow.final)),
            cleanup=self._stage(workflow.cleanup),
        )

    def _stage(self, stage: Stage[Any]) -> Stage[Any]:
        touched = self.touched[_name(stage)]
        touched.declared_reads, touched.declared_writes = frozenset(stage.reads), frozenset(stage.writes)

        async def run(state: Any) -> None:
            await _watched(stage.run, state, touched)

        when = stage.when
        if when is None:
            return replace(stage, run=run)
        return replace(stage, run=run, when=lambda state: when(_view(state, touched)))

    def _slot(self, workflow: Workflow[Any], slot: SlotStage[Any]) -> SlotStage[Any]:
        touched = self.touched[f"{workflow.name}.loop.{slot.name}"]
        touched.declared_reads = frozenset(slot.reads)
        return replace(slot, make=lambda state: slot.make(_view(state, touched)))


def _name(stage: Stage[Any]) -> str:
    """The same for a stage that several workflows have, under whatever name."""
    run: Any = stage.run
    return f"{run.__module__.removeprefix('cookhouse.')}.{run.__qualname__}"


class _RecordedBody:
    """A body of a workflow; what its parts write, and the runs in it, is not its own."""

    def __init__(self, body: Any, parts: list[Touched], touched: Touched) -> None:
        self._body, self._parts, self._touched = body, parts, touched
        touched.declared_reads, touched.declared_writes = frozenset(body.reads), frozenset(body.writes)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._body, name)

    async def run(self, state: Any) -> bool:
        result: list[bool] = []

        async def run(view: Any) -> None:
            result.append(await self._body.run(view))

        await _watched(run, state, self._touched)
        self._touched.written -= {name for part in self._parts for name in part.written}
        return result[0]


async def _watched(run: Callable[[Any], Awaitable[None]], state: Any, touched: Touched) -> None:
    """Run over a view; a list or a dict that has changed has been written."""
    before = {name: copy(value) for name, value in vars(state).items() if isinstance(value, list | dict)}
    await run(_view(state, touched))
    after = {name: value for name, value in vars(state).items() if name in before}
    touched.written |= {name for name, value in after.items() if value != before[name]} - OF_EVERY_RUN


def _view(state: Any, touched: Touched) -> Any:
    """An object of the state's class that has the same fields, and tells who looks at them."""
    known = {each.name for each in fields(state)} - OF_EVERY_RUN
    plain: type[Any] = getattr(type(state), "plain_class", type(state))
    own: set[str] = set()

    class View(plain):  # type: ignore[misc]
        plain_class = plain

        def __getattribute__(self, name: str) -> Any:
            if name in known:
                touched.looked_at.add(name)
                if name not in own:
                    touched.read.add(name)
            return super().__getattribute__(name)

        def __setattr__(self, name: str, value: Any) -> None:
            if name in known:
                own.add(name)
                touched.written.add(name)
            super().__setattr__(name, value)

    view = object.__new__(View)
    object.__setattr__(view, "__dict__", vars(state))
    return view
