"""Two evaluations item by item: where one is right and the other wrong, with what was asked and answered."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from starlette.requests import Request

from cookhouse.errors import InputError
from cookhouse.evals import Estimate, PairedDifference
from cookhouse.report import Change, ItemChanges, change_of
from cookhouse.runs.reading.answer_sets import ItemQuestion
from cookhouse.telemetry import Metric, find_metric, measured_text
from cookhouse.view.pages import ask_address, page_and_json
from cookhouse.view.paging import Paging
from cookhouse.view.routes.evaluations.sides import Side, asked_alike, changes_at, facts_of, sides_of, weights_of

_DIFFERENT: Final = (Change.GAINED, Change.LOST)
_ALL: Final = "all"
_MAX_SEARCHED_CHARACTERS: Final = 1 << 26


@dataclass(frozen=True, kw_only=True)
class Filters:
    """Empty: any, but for the change, where it is those that differ."""

    benchmark: str
    change: str
    group: str
    text: str

    @classmethod
    def of(cls, request: Request, benchmarks: Sequence[str]) -> "Filters":
        """Raises `InputError` for a change that there is not, and a benchmark that both have not."""
        names = ("benchmark", "change", "group", "text")
        found = cls(**{name: request.query_params.get(name, "") for name in names})
        if found.change not in ("", _ALL, *Change):
            raise InputError(f"change is one of {_ALL}, {', '.join(Change)}, not {found.change!r}")
        if found.benchmark and found.benchmark not in benchmarks:
            known = ", ".join(benchmarks) or "none"
            raise InputError(f"{found.benchmark!r} is nothing that both have answered, which is {known}")
        return found

    @property
    def changes(self) -> Sequence[Change]:
        """Changes that are shown."""
        if self.change == _ALL:
            return list(Change)
        return [Change(self.change)] if self.change else _DIFFERENT

    def of_benchmark(self, changes: Mapping[str, ItemChanges[Any]]) -> list[ItemChanges[Any]]:
        """Of the benchmarks that are shown."""
        return [some for name, some in changes.items() if self.benchmark in ("", name)]

    def select(self, items: Sequence[Any], sides: Sequence[Side]) -> tuple[list[Any], bool]:
        """The items that fit, and whether all were searched: of long texts only the first ones are."""
        if self.group:
            items = [item for item in items if sides[1].answers.group(item) == self.group]
        if not self.text:
            return list(items), True
        wanted, searched = self.text.casefold(), 0
        found: list[Any] = []
        for item in items:
            if searched > _MAX_SEARCHED_CHARACTERS:
                return found, False
            told = "\n".join(_texts(sides, item))
            searched += len(told)
            if wanted in told.casefold():
                found.append(item)
        return found, True

    def as_json(self) -> dict[str, str]:
        """By name."""
        return asdict(self)


def _texts(sides: Sequence[Side], item: Any) -> Iterator[str]:
    for side in sides:
        try:
            asked = side.answers.text(item)
            yield from () if asked is None else (*(text for _, text in asked.asked), asked.expected)
            yield from (answer.text for answer in side.answers.answers(item))
        except InputError:  # shown with the item, where that is shown
            continue


_ITEMS: Final = 30
"""On a page where the address does not say."""
_MAX_CHARACTERS: Final = 3000
"""Of a text; the page of the item has all of it."""
_UNKNOWN: Final = "what was asked was not kept: the evaluation is of an earlier version"


def _read(request: Request) -> dict[str, Any]:
    sides = sides_of(request)
    first, second = sides
    shared = asked_alike(first.answers, second.answers)
    benchmarks = list(dict.fromkeys(map(second.answers.benchmark, shared.items)))
    filters = Filters.of(request, benchmarks)
    changes = {name: changes_at(sides, name, shared) for name in benchmarks}
    chosen = [item for some in filters.of_benchmark(changes) for item in some.of(filters.changes)]
    found, is_whole = filters.select(chosen, sides)
    paging = Paging.of(request, len(found), _ITEMS)
    return {
        "sides": [
            {**facts_of(side.run), "label": side.label, "step": side.step, "steps": list(side.steps)} for side in sides
        ],
        "benchmarks": [_benchmark(name, some) for name, some in changes.items()],
        "counts": _counts(filters, changes),
        "num_asked_otherwise": shared.num_otherwise,
        "groups": sorted({group for item in shared.items if (group := second.answers.group(item)) is not None}),
        "filters": filters.as_json(),
        "is_searched_whole": is_whole,
        "items": [_item(sides, item) for item in paging.cut(found)],
        "paging": paging.as_json(),
        "problems": [f"{side.run.name}: {problem}" for side in sides for problem in side.answers.problems],
    }


def _counts(filters: Filters, changes: Mapping[str, ItemChanges[Any]]) -> dict[str, int]:
    return {change: sum(len(some.items[change]) for some in filters.of_benchmark(changes)) for change in Change}


def _benchmark(name: str, changes: ItemChanges[Any]) -> dict[str, Any]:
    metric, difference = find_metric(f"test/{name}/correct", {}), changes.difference
    return {
        "name": name,
        "first": _estimate(metric, changes.first),
        "second": _estimate(metric, changes.second),
        "difference": {
            "mean": difference.mean,
            "stderr": difference.stderr,
            "interval": difference.interval,
            "n": difference.n,
            "is_clear": difference.is_clear,
            "text": _difference_text(metric, difference),
        },
        "counts": {change: len(items) for change, items in changes.items.items()},
        "num_only_first": changes.num_only_first,
        "num_only_second": changes.num_only_second,
    }


def _estimate(metric: Metric, estimate: Estimate) -> dict[str, Any]:
    text = measured_text(metric, estimate.mean, estimate.stderr, estimate.n)
    return {"mean": estimate.mean, "stderr": estimate.stderr, "n": estimate.n, "text": text}


def _difference_text(metric: Metric, difference: PairedDifference) -> str:
    if difference.mean is None:
        return "-"
    text = metric.difference_text(0.0, difference.mean)
    if difference.stderr is None:
        return text
    unit = " points" * text.endswith(" points")
    error = metric.difference_text(0.0, difference.stderr).lstrip("+±").removesuffix(" points")
    return f"{text.removesuffix(' points')} ± {error}{unit}"


def _item(sides: tuple[Side, Side], item: Any) -> dict[str, Any]:
    first, second = (side.answers for side in sides)
    return {
        "benchmark": second.benchmark(item),
        "item": second.number(item),
        "change": change_of(first.scores[item], second.scores[item]),
        "group": second.group(item),
        **_asked(sides, item),
        "sides": [_answered(side, item) for side in sides],
    }


def _asked(sides: tuple[Side, Side], item: Any) -> dict[str, Any]:
    told: ItemQuestion | None = None
    problem = _UNKNOWN
    for side in sides:
        try:
            told = told or side.answers.text(item)
        except InputError as error:
            problem = str(error)
    if told is None:
        return {"name": None, "asked": [], "expected": None, "ask_address": None, "problem": problem}
    weights = [name for side in sides for name in weights_of(side)]
    asked = [{"role": role, **_cut(text)} for role, text in told.asked]
    return {
        "name": told.name,
        "asked": asked,
        "expected": _cut(told.expected),
        "ask_address": ask_address([*dict.fromkeys(weights)], told.asked),
        "problem": None,
    }


def _answered(side: Side, item: Any) -> dict[str, Any]:
    told = {"score": side.answers.scores[item], "address": side.address(item)}
    try:
        answers = [{"outcome": each.outcome, **_cut(each.text)} for each in side.answers.answers(item)]
    except InputError as error:
        return {**told, "answers": [], "problem": str(error)}
    return {**told, "answers": answers, "problem": None}


def _cut(text: str) -> dict[str, Any]:
    """A text with how much more there is of it."""
    return {"text": text[:_MAX_CHARACTERS], "num_more": max(0, len(text) - _MAX_CHARACTERS)}


ROUTES = page_and_json("/evaluations/compare", _read, "evaluation_compare.html")
