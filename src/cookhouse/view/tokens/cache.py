"""Cache of rollout files, for the next page of the same step: brought up to date, and bounded."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from pathlib import Path
from typing import Generic, TypeVar

from cookhouse.runs.reading.lines import Lines, find_lines
from cookhouse.runs.reading.rollout_texts import RolloutTexts, read_texts
from cookhouse.runs.reading.rollouts import RolloutGroup, RolloutIndex, index_rollouts, read_group
from cookhouse.runs.reading.token_values import ValueFile, index_values
from cookhouse.view.tokens.words import Words

V = TypeVar("V")
_MAX_INDEXES = 32
_MAX_GROUPS = 256
_MAX_TEXTS = 2
"""Files whose texts are kept: those of 10,000 long rollouts are some 80 MB."""


class Kept(Generic[V]):
    """The last values by key. A value is made from the one before by one thread at a time, while others wait."""

    def __init__(self, max_values: int) -> None:
        self._max_values = max_values
        self._values: OrderedDict[Hashable, V] = OrderedDict()
        self._locks: dict[Hashable, threading.Lock] = {}
        self._lock = threading.Lock()

    def get(self, key: Hashable, make: Callable[[V | None], V]) -> V:
        """The value of a key; `make` gets the one that was kept, and gives what holds now."""
        with self._lock:
            lock = self._locks.setdefault(key, threading.Lock())
        with lock:
            value = make(self._values.get(key))
            with self._lock:
                self._values[key] = value
                self._values.move_to_end(key)
                while len(self._values) > self._max_values:
                    gone, _ = self._values.popitem(last=False)
                    self._locks.pop(gone, None)
        return value


class RolloutCache:
    """Lines of metrics, and indexes, texts and values of rollouts."""

    def __init__(self) -> None:
        self._lines: Kept[Lines] = Kept(_MAX_INDEXES)
        self._indexes: Kept[RolloutIndex] = Kept(_MAX_INDEXES)
        self._texts: Kept[RolloutTexts] = Kept(_MAX_TEXTS)
        self._groups: Kept[RolloutGroup] = Kept(_MAX_GROUPS)
        self._values: Kept[ValueFile] = Kept(_MAX_INDEXES)

    def lines(self, path: Path) -> Lines:
        return self._lines.get(path, lambda known: find_lines(path, known))

    def index(self, path: Path) -> RolloutIndex:
        return self._indexes.get(path, lambda known: index_rollouts(path, known))

    def group(self, index: RolloutIndex, number: int) -> RolloutGroup:
        """Raises as `read_group`."""
        facts = index.by_number.get(number)
        key = (index.path, index.lines.inode, None if facts is None else index.lines.span(facts.line))
        return self._groups.get(key, lambda known: known or read_group(index, number))

    def texts(self, index: RolloutIndex, words: Words) -> RolloutTexts:
        """Texts of the rollouts; takes seconds for thousands that nobody has searched before."""
        decode = None if words.wording is None else words.decode_batch
        return self._texts.get(index.path, lambda known: read_texts(index, decode, known))

    def values(self, path: Path, key: str) -> ValueFile:
        return self._values.get(path, lambda known: index_values(path, key, known))
