"""The two evaluations that an address names, and which of their items were asked alike."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from starlette.requests import Request

from cookhouse.errors import InputError
from cookhouse.report import ItemChanges, item_changes
from cookhouse.runs.listing.find import FoundRun
from cookhouse.runs.reading.answer_sets import AnswerSet, AnswerSetReader, is_evaluation
from cookhouse.runs.samples import evaluated_steps
from cookhouse.telemetry import after_step
from cookhouse.view.pages import query_text
from cookhouse.view.place import Place

ANSWERS: Final = AnswerSetReader()


@dataclass(frozen=True, kw_only=True)
class Side:
    """An evaluation: one that stands alone, or one of a training run."""

    run: FoundRun
    step: int | None
    """That the weights had taken; None: it stands alone."""
    steps: Sequence[int]
    """That one may choose from."""
    answers: AnswerSet

    @property
    def label(self) -> str:
        """The run, and when."""
        return self.run.name if self.step is None else f"{self.run.name} {after_step(self.step)}"

    @property
    def query(self) -> list[tuple[str, str]]:
        """Query that names it in an address."""
        return [("run", self.run.name), *([] if self.step is None else [("step", str(self.step))])]

    def address(self, item: Any) -> str:
        """Of the page that has all of an item."""
        named = [("benchmark", self.answers.benchmark(item)), ("item", str(self.answers.number(item)))]
        return "/evaluations/item?" + query_text([*self.query, *named])


def facts_of(run: FoundRun) -> dict[str, Any]:
    """Facts about an evaluation."""
    settings = run.record.get("config", {})
    model = settings.get("weights") or settings.get("model_name")
    return {
        "run": run.name,
        "recipe": run.record.get("recipe"),
        "model": model if isinstance(model, str) else None,
        "status": str(run.history.status),
    }


def weights_of(side: Side) -> list[str]:
    """Weights that the playground can ask in place of an evaluation, if they are known."""
    model = facts_of(side.run)["model"] if side.step is None else side.run.name
    return [] if model is None else [model]


def sides_of(request: Request) -> tuple[Side, Side]:
    """As the address says: `run` once or twice, `step` up to twice. Of one run its first and its last evaluation, of
    two the last of each; a single step is that of the second, or of both runs.
    """
    names, given = request.query_params.getlist("run"), steps_of(request)
    if not 1 <= len(names) <= 2 or len(given) > 2:
        raise InputError("choose one run, whose first and last evaluation are compared, or two: run=A&run=B")
    place: Place = request.app.state.place
    runs = [place.run(name) for name in names]
    if len(set(names)) == 2:
        steps = given * 2 if len(given) == 1 else given or [None, None]
        return side_of(runs[0], steps[0]), side_of(runs[1], steps[1])
    known = list(evaluated_steps(runs[0].path))
    if len(known) < 2:
        raise InputError(f"{names[0]} has no two evaluations whose answers were kept; choose another run beside it")
    first, second = given if len(given) == 2 else (known[0], *(given or known[-1:]))
    return side_of(runs[0], first), side_of(runs[0], second)


def side_of(run: FoundRun, step: int | None) -> Side:
    """An evaluation of a run; without a step, the last.

    Raises:
        InputError: there is none.
    """
    if is_evaluation(run.path):
        return Side(run=run, step=None, steps=(), answers=ANSWERS.read(run.path, None))
    steps = list(evaluated_steps(run.path))
    if not steps:
        raise InputError(f"{run.name} has no evaluation whose answers were kept")
    step = steps[-1] if step is None else step
    return Side(run=run, step=step, steps=steps, answers=ANSWERS.read(run.path, step))


def steps_of(request: Request) -> list[int | None]:
    """The steps of an address."""
    found = [text for text in request.query_params.getlist("step") if text]
    for text in found:
        if not (text.isascii() and text.isdecimal() and len(text) <= 15):
            raise InputError(f"step is a whole number from 0 on, not {text!r}")
    return [int(text) for text in found]


@dataclass(frozen=True)
class Shared:
    """Common parts of two evaluations."""

    items: Mapping[Any, None]
    """In the order of the second."""
    num_otherwise: int
    """Items of the same number that are not the same question: not compared."""


def asked_alike(first: AnswerSet, second: AnswerSet) -> Shared:
    """Items that both answered. Where it is not known what was asked, the same number is taken for the same item."""
    both = [item for item in second.scores if item in first.scores]

    def is_alike(item: Any) -> bool:
        one, other = first.question(item), second.question(item)
        return one is None or other is None or one == other

    alike = dict.fromkeys(filter(is_alike, both))
    return Shared(items=alike, num_otherwise=len(both) - len(alike))


def changes_at(sides: tuple[Side, Side], benchmark: str, shared: Shared) -> ItemChanges[Any]:
    """At one benchmark. What one side alone has counts as that; what was asked otherwise, in neither."""
    first, second = sides[0].answers, sides[1].answers

    def scores(own: AnswerSet, other: AnswerSet) -> dict[Any, float]:
        counted = (item for item in own.scores if item in shared.items or item not in other.scores)
        return {item: own.scores[item] for item in counted if own.benchmark(item) == benchmark}

    return item_changes(scores(first, second), scores(second, first))
