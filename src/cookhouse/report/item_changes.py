"""Two models at the same items, or one at two steps: which items each gets right, and how far apart they are."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, TypeVar

from cookhouse.evals import Estimate, PairedDifference

K = TypeVar("K")


class Change(StrEnum):
    """Change of an item from the first to the second. Of several samples an item's score is their mean."""

    GAINED = "gained"
    """Wrong to right, or right more often."""
    LOST = "lost"
    """Right to wrong, or right less often."""
    RIGHT = "right"
    """Right in both."""
    WRONG = "wrong"
    """Right in neither; or equally often, but not always."""


@dataclass(frozen=True, kw_only=True)
class ItemChanges(Generic[K]):
    """The items that both have, by what became of them."""

    items: Mapping[Change, Sequence[K]]
    """In the order of the second."""
    first: Estimate
    """Mean score over those items."""
    second: Estimate
    difference: PairedDifference
    """The second less the first."""
    num_only_first: int
    """Items that the second has not."""
    num_only_second: int

    def of(self, changes: Sequence[Change]) -> list[K]:
        """The items of some kinds, those that differ first."""
        return [item for change in Change if change in changes for item in self.items[change]]


def item_changes(first: Mapping[K, float], second: Mapping[K, float]) -> ItemChanges[K]:
    """Differences of the scores of two, each from 0 to 1 by item."""
    items: dict[Change, list[K]] = {change: [] for change in Change}
    for item, score in second.items():
        if item in first:
            items[change_of(first[item], score)].append(item)
    shared = [item for some in items.values() for item in some]
    return ItemChanges(
        items=items,
        first=Estimate.of([first[item] for item in shared]),
        second=Estimate.of([second[item] for item in shared]),
        difference=PairedDifference.of(first, second),
        num_only_first=len(first) - len(shared),
        num_only_second=len(second) - len(shared),
    )


def change_of(first: float, second: float) -> Change:
    """Change of an item, by its scores."""
    if first != second:
        return Change.GAINED if second > first else Change.LOST
    return Change.RIGHT if second >= 1.0 else Change.WRONG
