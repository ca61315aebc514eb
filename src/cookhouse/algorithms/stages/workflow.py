"""A workflow: stages to set up, a body, stages to finish; and cleanup, which always runs."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, replace
from itertools import takewhile
from typing import Any, Generic, TypeVar

from cookhouse.adapters import check_ports
from cookhouse.algorithms.stages.body import Body, spliced
from cookhouse.algorithms.stages.stage import Stage, field_types
from cookhouse.algorithms.stages.state import RunContext, RunState
from cookhouse.callables.arguments import checked
from cookhouse.data import DataSource
from cookhouse.errors import InputError, UnknownNameError
from cookhouse.registry import Descent

S = TypeVar("S", bound=RunState)
T = TypeVar("T", bound=RunState)

_USED_BY_EVERY_RUN = frozenset({"blobs", "hub", "sinks"})


@checked
@dataclass(frozen=True, kw_only=True)
class Workflow(Generic[S]):
    """Stages of a recipe, as objects: the same ones are checked, run and described."""

    name: str
    state_class: type[S]
    """A dataclass whose fields stages take and return; its methods give facts, previews and the result."""
    inputs: Mapping[str, Any]
    """Fields of the state that are there from the start, such as `config`."""
    setup: tuple[Stage, ...]
    body: Body
    final: tuple[Stage, ...] = ()
    cleanup: Stage
    """Runs last however the others ended, so it reads nothing that must have been written."""
    descent: Descent = Descent.FINE_TUNED_FROM
    """How the weights that it trains come from those that it starts from."""
    data_files: Mapping[str, DataSource] = field(default_factory=dict)
    """Files and data sets that the run reads, by use; a resume on changed ones is refused."""

    def start(self, context: RunContext) -> S:
        """The state that stages then fill."""
        return self.state_class(context=context, **self.inputs)

    def check(self, ports: Collection[str]) -> None:
        """See that every stage will find what it reads, and that every port is there, before anything runs.

        Raises:
            InputError: a stage takes or returns what is no field of the state, or takes it before it is there or as
                another type; or it needs a port that was not given or that no run has; or two stages have one name.
        """
        there = {each.name for each in _fields(self.state_class) if each.init or _has_default(each)}
        names = [each.name for each in self.stages() if not each.is_slot]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise InputError(f"workflow {self.name}: two stages are called {', '.join(twice)}; give each its own name")
        for each in self.setup:
            there |= self._check_stage(each, there, ports)
        self._check_reads(self.body.title, self.body.reads, there)
        for part in self.body.parts:
            there |= self._check_stage(part, there, ports)
        there |= set(self.body.writes)
        for each in (*self.final, self.cleanup):
            there |= self._check_stage(each, there, ports)

    def _check_stage(self, each: Stage, there: Collection[str], ports: Collection[str]) -> set[str]:
        """Check a stage, and return the fields that are there once it has run. Raises as `check`."""
        self._check_reads(each.name, each.reads, there)
        given = {name: type(value) for name, value in self.inputs.items()}
        for name, types in each.misfits({**field_types(self.state_class), **given}).items():
            raise InputError(f"workflow {self.name}: stage {each.name} takes {name} as {types}")
        writes = set(each.writes(self.state_class))
        check_ports((*each.needs, *each.uses), f"stage {each.name} of workflow {self.name} names it")
        if missing := sorted(set(each.needs) - set(ports)):
            raise InputError(
                f"workflow {self.name}: stage {each.name} needs the port {', '.join(missing)}, which has no adapter; "
                f"there is {', '.join(sorted(ports)) or 'none'}"
            )
        return set() if each.may_be_skipped else writes

    def _check_reads(self, name: str, reads: Collection[str], there: Collection[str]) -> None:
        known = sorted(each.name for each in _fields(self.state_class))
        if missing := sorted(set(reads) - set(known)):
            raise InputError(
                f"workflow {self.name}: stage {name} takes {', '.join(missing)}, which is no field of "
                f"{self.state_class.__name__}; it has {', '.join(known)}"
            )
        if missing := sorted(set(reads) - set(there)):
            raise InputError(self._unwritten(name, missing))

    def _unwritten(self, reader: str, missing: Sequence[str]) -> str:
        writers = [each for each in self.stages() if set(each.writes(self.state_class)) & set(missing)]
        said = f"workflow {self.name}: stage {reader} takes {', '.join(missing)}, which is not there by then; "
        if not writers:
            return said + "no stage of this workflow returns it: insert one that does before it"
        return said + f"{', '.join(each.name for each in writers)} returns it: put {reader} after that, unconditionally"

    @property
    def preparing(self) -> Sequence[Stage]:
        """The stages of the setup before the first that needs a port or leaves files: a dry run has them, too."""
        return tuple(takewhile(lambda each: not each.needs and not each.leaves_files, self.setup))

    @property
    def needs(self) -> frozenset[str]:
        """Ports that some stage needs."""
        return frozenset(port for each in self.stages() for port in each.needs)

    @property
    def uses(self) -> frozenset[str]:
        """Ports that some stage, or what runs the stages, uses where they have an adapter."""
        return frozenset(_USED_BY_EVERY_RUN.union(*(each.uses for each in self.stages()))) - self.needs

    def stages(self) -> Iterator[Stage]:
        """Everything that runs, in its order."""
        yield from (*self.setup, *self.body.parts, *self.final, self.cleanup)

    def with_state(self, state_class: type[T], **inputs: Any) -> "Workflow[T]":
        """The workflow over a state of one's own, a dataclass that adds fields to this one's; `inputs` are those of
        them that are there from the start.
        """
        assert issubclass(state_class, self.state_class)
        wider: Any = self
        widened: Workflow[T] = replace(wider, state_class=state_class, inputs={**self.inputs, **inputs})
        return widened

    def stage(self, name: str) -> Stage:
        """The stage of that name, or, as `loop.NAME`, what fills a slot of the loop; those have names of their own.

        Raises:
            UnknownNameError: there is none.
        """
        by_name = {self._path(each): each for each in self.stages()}
        if name not in by_name:
            raise UnknownNameError(f"stage of workflow {self.name}", name, by_name)
        return by_name[name]

    def replaced(self, name: str, new: Stage) -> "Workflow[S]":
        """The workflow with another stage in the place of the one of that name. Raises as `stage`."""
        old = self.stage(name)
        if old is self.cleanup and not new.is_slot:
            return replace(self, cleanup=new)
        return self._with(old, (new,))

    def inserted(self, new: Stage, *, before: str | None = None, after: str | None = None) -> "Workflow[S]":
        """The workflow with one more stage, before or after the one of that name.

        Raises:
            UnknownNameError: it has no such stage.
            InputError: neither or both are named, or there can be no stage at that place.
        """
        place = before or after
        if place is None or (before is not None and after is not None):
            raise InputError(f"name the stage before which or after which {new.name} is to run, one of the two")
        old = self.stage(place)
        return self._with(old, (new, old) if before is not None else (old, new))

    def without(self, name: str) -> "Workflow[S]":
        """The workflow without a stage. Raises as `inserted`."""
        return self._with(self.stage(name), ())

    def describe(self) -> str:
        """The stages as a tree; `?` marks those that run at times only."""
        parts = {
            "setup": [_marked(each) for each in self.setup],
            self.body.title: [
                *(name for each in self.body.parts for name in (_marked(each), *each.parts)),
                *self.body.children,
            ],
            "final": [*(_marked(each) for each in self.final), self.cleanup.name],
        }
        lines = [self.name]
        for (title, names), (edge, indent) in zip(parts.items(), _edges(len(parts)), strict=True):
            lines.append(edge + title)
            lines += [indent + inner + name for name, (inner, _) in zip(names, _edges(len(names)), strict=True)]
        return "\n".join(lines)

    def _with(self, old: Stage, instead: Sequence[Stage]) -> "Workflow[S]":
        if old in self.body.parts:
            return replace(self, body=self.body.with_parts(old.name, instead))
        if any(each.is_slot for each in instead) or old is self.cleanup:
            raise InputError(
                f"workflow {self.name}: a slot of the loop, or a second cleanup, is not allowed at {old.name}"
            )
        setup, final = spliced(self.setup, old.name, instead), spliced(self.final, old.name, instead)
        return replace(self, setup=setup, final=final)

    def _path(self, each: Stage) -> str:
        return f"{self.body.title}.{each.name}" if each.is_slot else each.name


def _fields(state_class: Any) -> Sequence[Any]:
    return fields(state_class)


def _has_default(each: Any) -> bool:
    return each.default is not MISSING or each.default_factory is not MISSING


def _marked(each: Stage) -> str:
    return each.name + "?" * each.may_be_skipped


def _edges(count: int) -> list[tuple[str, str]]:
    """Characters before each of `count` branches, and before their own branches."""
    return [("├── ", "│   ")] * (count - 1) + [("└── ", "    ")]
