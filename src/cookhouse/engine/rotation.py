"""Rotation among several that have work, so that each gets an equal share."""

from collections.abc import Container
from typing import Generic, TypeVar

K = TypeVar("K")

_MIN_IDLE = 64


class Rotation(Generic[K]):
    """Queue in which those served least go first, the one that came first among equals. Service is counted in any unit:
    tokens, say.

    Whoever is new, or comes back, starts where the one that was served last started: nothing is saved up while idle,
    and what was taken before others came is not owed. Start-time fair queueing: https://doi.org/10.1109/90.649569.
    """

    def __init__(self) -> None:
        self._served: dict[K, float] = {}
        self._idle: dict[K, float] = {}
        """Of those without work that were ahead of `_now`: leaving and coming back must not gain a turn."""
        self._now = 0.0

    def __len__(self) -> int:
        return len(self._served)

    def add(self, key: K) -> None:
        """It has work from now on; again changes nothing."""
        if key not in self._served:
            self._served[key] = max(self._idle.pop(key, 0.0), self._now)

    def remove(self, key: K) -> None:
        """It has no work any more."""
        self._idle[key] = self._served.pop(key)
        if not self._served:
            self._now = max(self._now, *self._idle.values())
        if not self._served or len(self._idle) > _MIN_IDLE + 2 * len(self._served):
            self._idle = {key: served for key, served in self._idle.items() if served > self._now}

    def charge(self, key: K, amount: float) -> None:
        """Count a turn of one that has work."""
        self._now = max(self._now, self._served[key])
        self._served[key] += amount

    def order(self) -> list[K]:
        """All that have work, the next one first."""
        return sorted(self._served, key=self._served.__getitem__)

    def first(self, keys: Container[K]) -> K:
        """The one of these whose turn is next; one of them has work."""
        return min((key for key in self._served if key in keys), key=self._served.__getitem__)
