"""Numbered values in their order, however they come."""

from typing import Generic, TypeVar

_T = TypeVar("_T")


class InOrder(Generic[_T]):
    """Values are numbered from 0. Each is given once, when all before it have been; a second of a number is dropped."""

    def __init__(self) -> None:
        self._next = 0
        self._early: dict[int, _T] = {}

    def put(self, number: int, value: _T) -> list[_T]:
        """Take one in; those whose turn has come, in order."""
        if number >= self._next:
            self._early.setdefault(number, value)
        ready = []
        while self._next in self._early:
            ready.append(self._early.pop(self._next))
            self._next += 1
        return ready
