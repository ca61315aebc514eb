"""A workflow: stages to set up, a body, stages to finish; and cleanup, which always runs."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, replace
from itertools import takewhile
from typing import Any, Generic, TypeVar

from cookhouse.adapters import check_ports
from cookhouse.callables.arguments import checked
from cookhouse.data import DataSource
from cookhouse.errors import InputError, UnknownNameError
from cookhouse.registry import Descent
from cookhouse.runs import Preview, RunResult
from cookhouse.workflows.stages.body import Body, spliced
from cookhouse.workflows.stages.stage import S, SlotStage, Stage
from cookhouse.workflows.stages.state import RunContext

T = TypeVar("T")

_USED_BY_EVERY_RUN = frozenset({"blobs", "hub", "sinks"})


def _no_facts(state: Any) -> Mapping[str, str]:
    del state
    return {}


def _no_notes(state: Any) -> Sequence[str]:
    del state
    return ()


def _no_previews(state: Any) -> Sequence[Preview]:
    del state
    return ()


@checked
@dataclass(frozen=True, kw_only=True)
class Workflow(Generic[S]):
    """Stages of a recipe, as objects: the same ones are checked, run and described."""

    name: str
    state_class: type[S]
    start: Callable[[RunContext], S]
    """Makes the state that stages then fill."""
    setup: tuple[Stage[S], ...]
    body: Body[S]
    final: tuple[Stage[S], ...]
    cleanup: Stage[S]
    """Runs last however the others ended, so it reads nothing that must have been written."""
    result: Callable[[S, float], RunResult[S]]
    """What a run hands back, from its state and its seconds, after it came to its end or was interrupted."""
    facts: Callable[[S], Mapping[str, str]] = _no_facts
    """What a run would do, in words and with units, from the state after the stages that need no port."""
    notes: Callable[[S], Sequence[str]] = _no_notes
    """What a person should know about the data, a sentence each, from the same state."""
    previews: Callable[[S], Sequence[Preview]] = _no_previews
    """First examples, from the same state."""
    descent: Descent = Descent.FINE_TUNED_FROM
    """How the weights that it trains come from those that it starts from."""
    data_files: Mapping[str, DataSource] = field(default_factory=dict)
    """Files and data sets that the run reads, by what for; a resume on changed ones is refused."""

    def check(self, ports: Collection[str]) -> None:
        """See that every stage will find what it reads, and that every port is there, before anything runs.

        Raises:
            InputError: a stage reads or writes what is not there, or needs a port that was not given or that no run
                has; or two stages have one name.
        """
        known = {each.name for each in fields(self._declared)}
        there = {each.name for each in fields(self._declared) if each.init or _has_default(each)}
        names = [each.name for each in self.stages() if isinstance(each, Stage)]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise InputError(f"workflow {self.name}: two stages are called {', '.join(twice)}; give each its own name")
        for each in self.setup:
            there |= self._check_stage(each, known, there, ports)
        self._check_reads(self.body.title, self.body.reads, known, there)
        for part in self.body.parts:
            there |= self._check_stage(part, known, there, ports)
        there |= set(self.body.writes)
        for each in (*self.final, self.cleanup):
            there |= self._check_stage(each, known, there, ports)

    def _check_stage(
        self, each: Stage[S] | SlotStage[Any], known: Collection[str], there: Collection[str], ports: Collection[str]
    ) -> set[str]:
        """Check a stage, and return the fields that are there once it has run. Raises as `check`."""
        self._check_reads(each.name, each.reads, known, there)
        if isinstance(each, SlotStage):
            return set()
        self._check_fields(each.name, "writes", each.writes, known)
        check_ports((*each.needs, *each.uses), f"stage {each.name} of workflow {self.name} names it")
        if missing := sorted(set(each.needs) - set(ports)):
            raise InputError(
                f"workflow {self.name}: stage {each.name} needs the port {', '.join(missing)}, which has no adapter; "
                f"there is {', '.join(sorted(ports)) or 'none'}"
            )
        return set() if each.is_optional else set(each.writes)

    def _check_reads(self, name: str, reads: Collection[str], known: Collection[str], there: Collection[str]) -> None:
        self._check_fields(name, "reads", reads, known)
        if missing := sorted(set(reads) - set(there)):
            raise InputError(self._unwritten(name, missing))

    @property
    def preparing(self) -> Sequence[Stage[S]]:
        """The stages of the setup before the first that needs a port or leaves files: a dry run has them, too."""
        return tuple(takewhile(lambda each: not each.needs and not each.leaves_files, self.setup))

    @property
    def needs(self) -> frozenset[str]:
        """Ports that some stage needs."""
        return frozenset(port for each in self.stages() if isinstance(each, Stage) for port in each.needs)

    @property
    def uses(self) -> frozenset[str]:
        """Ports that some stage, or what runs the stages, does without where they are not there."""
        named = {port for each in self.stages() if isinstance(each, Stage) for port in each.uses}
        return frozenset(named | _USED_BY_EVERY_RUN) - self.needs

    def stages(self) -> Iterator[Stage[S] | SlotStage[Any]]:
        """Everything that runs, in its order."""
        yield from (*self.setup, *self.body.parts, *self.final, self.cleanup)

    def with_state(self, state_class: type[T], start: Callable[[RunContext], T]) -> "Workflow[T]":
        """The workflow over a state of one's own, a dataclass that adds fields to this one's."""
        assert issubclass(state_class, self.state_class)
        wider: Any = self
        widened: Workflow[T] = replace(wider, state_class=state_class, start=start)
        return widened

    def stage(self, name: str) -> Stage[S] | SlotStage[Any]:
        """The stage of that name, or, as `loop.NAME`, what fills a slot of the loop; those have names of their own.

        Raises:
            UnknownNameError: there is none.
        """
        by_name = {self._path(each): each for each in self.stages()}
        if name not in by_name:
            raise UnknownNameError(f"stage of workflow {self.name}", name, by_name)
        return by_name[name]

    def replaced(self, name: str, new: Stage[S] | SlotStage[Any]) -> "Workflow[S]":
        """The workflow with another stage in the place of the one of that name. Raises as `stage`."""
        old = self.stage(name)
        if old is self.cleanup and isinstance(new, Stage):
            return replace(self, cleanup=new)
        return self._with(old, (new,))

    def inserted(self, new: Stage[S], *, before: str | None = None, after: str | None = None) -> "Workflow[S]":
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
        body = [name for each in self.body.parts for name in (_marked(each), *_inner(each))]
        parts = {
            "setup": [_marked(each) for each in self.setup],
            self.body.title: [*body, *self.body.children],
            "final": [*(_marked(each) for each in self.final), self.cleanup.name],
        }
        lines = [self.name]
        for (title, names), (edge, indent) in zip(parts.items(), _edges(len(parts)), strict=True):
            lines.append(edge + title)
            lines += [indent + inner + name for name, (inner, _) in zip(names, _edges(len(names)), strict=True)]
        return "\n".join(lines)

    @property
    def _declared(self) -> Any:
        return self.state_class

    def _check_fields(self, name: str, verb: str, named: Collection[str], known: Collection[str]) -> None:
        if missing := set(named) - set(known):
            raise InputError(
                f"workflow {self.name}: stage {name} {verb} {', '.join(sorted(missing))}, which is no field of "
                f"{self.state_class.__name__}; it has {', '.join(sorted(known))}"
            )

    def _unwritten(self, reader: str, missing: Sequence[str]) -> str:
        writers = [each for each in self.stages() if isinstance(each, Stage) and set(each.writes) & set(missing)]
        said = f"workflow {self.name}: stage {reader} reads {', '.join(missing)}, which is not there by then; "
        if not writers:
            return said + "no stage of this workflow writes it: insert one that does before it"
        return said + f"{', '.join(each.name for each in writers)} writes it: put {reader} after that, unconditionally"

    def _with(self, old: Stage[S] | SlotStage[Any], instead: Sequence[Stage[S] | SlotStage[Any]]) -> "Workflow[S]":
        if old in self.body.parts:
            return replace(self, body=self.body.with_parts(old.name, instead))
        stages = [each for each in instead if isinstance(each, Stage)]
        if len(stages) < len(instead) or old is self.cleanup:
            raise InputError(
                f"workflow {self.name}: a slot of the loop, or a second cleanup, is not allowed at {old.name}"
            )
        setup, final = spliced(self.setup, old.name, stages), spliced(self.final, old.name, stages)
        return replace(self, setup=setup, final=final)

    def _path(self, each: Stage[S] | SlotStage[Any]) -> str:
        return each.name if isinstance(each, Stage) else f"{self.body.title}.{each.name}"


def _has_default(each: Any) -> bool:
    return each.default is not MISSING or each.default_factory is not MISSING


def _marked(each: Stage[Any] | SlotStage[Any]) -> str:
    return each.name + "?" * each.is_optional


def _inner(each: Stage[Any] | SlotStage[Any]) -> tuple[str, ...]:
    return each.parts if isinstance(each, SlotStage) else ()


def _edges(count: int) -> list[tuple[str, str]]:
    """Characters before each of `count` branches, and before their own branches."""
    return [("├── ", "│   ")] * (count - 1) + [("└── ", "    ")]
