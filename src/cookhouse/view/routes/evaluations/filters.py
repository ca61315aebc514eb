"""Which items of a comparison a page shows, as its address says."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from starlette.requests import Request

from cookhouse.errors import InputError
from cookhouse.report import Change, ItemChanges
from cookhouse.view.routes.evaluations.sides import Side

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
        """Those that are shown."""
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
