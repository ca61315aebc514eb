"""One budget of a device's memory: weights, packed copies, caches, adapters, snapshots and passes ask for it here.

What is promised and has not been taken yet never exceeds what is free. Nothing is taken that was not asked for; what
does not fit is refused with figures. What others on the machine take is seen: what is free is measured each time.
"""

import math
from collections.abc import Callable, Collection
from typing import Literal, get_args

import torch

from cookhouse.engine.contract import NoMemoryError
from cookhouse.engine.heap import give_back
from cookhouse.engine.host_memory import show_bytes
from cookhouse.engine.memory import free_bytes

Purpose = Literal["cache", "request", "snapshot", "pass"]
"""What is taken later than it is promised: `cache` as sequences need it, `request` by the gradient of a request that
runs, `snapshot` by weights that a model publishes, `pass` by what passes compute with. What is taken at once needs a
`check` alone, and is then missing from what is free."""
_RESERVE_BYTES = 2**29
"""Left to passes, which compute activations again where that is little; where little is free, an eighth of it."""
_OF_PASSES: frozenset[Purpose] = frozenset({"request", "pass"})


class Budget:
    """Promises by key; several may be of one key, each for another purpose."""

    def __init__(self, device: torch.device, free: Callable[[], int] | None = None) -> None:
        """`free` says how many bytes can be taken now; None: as `free_bytes` finds it."""
        self.free: Callable[[], int] = free or (lambda: free_bytes(device))
        self.device = device
        self._left: dict[tuple[Purpose, str], Callable[[], int]] = {}
        """Of each promise, the bytes that have not been taken yet."""
        reserve = min(_RESERVE_BYTES, self.free() // 8)
        self.promise("pass", "all", reserve)

    def spare_bytes(self, wanted: float = math.inf, *, but_for: Collection[Purpose] = ()) -> int:
        """Bytes that are free and not promised; promises for some purposes can be left out, for whom they were made.

        Where that is less than `wanted`, the heap first gives back what it keeps for later.
        """
        spare = self._spare(but_for)
        if spare < wanted and self.device.type == "cpu":
            give_back()
            spare = self._spare(but_for)
        return spare

    def pass_bytes(self, wanted: float) -> int:
        """Bytes that a pass may take: those that are free and promised to nothing but passes."""
        return self.spare_bytes(wanted, but_for=_OF_PASSES)

    def _spare(self, but_for: Collection[Purpose]) -> int:
        return max(self.free() - self.promised_bytes(but_for=but_for), 0)

    def promised_bytes(self, *, but_for: Collection[Purpose] = ()) -> int:
        """Bytes that have been promised and not been taken yet."""
        return sum(left() for (purpose, _), left in self._left.items() if purpose not in but_for)

    def check(self, num_bytes: int, what: str, way_out: str, *, but_for: Collection[Purpose] = ()) -> None:
        """Refuse what does not fit.

        Raises:
            NoMemoryError: the message names what is asked for, what is spare, and what the rest is promised to.
        """
        spare = self.spare_bytes(num_bytes, but_for=but_for)
        if num_bytes > spare:
            raise NoMemoryError(
                f"{what} takes {show_bytes(num_bytes)} and {show_bytes(spare)} of memory are free"
                f"{self._promises_in_words(but_for)}; {way_out}"
            )

    def promise(self, purpose: Purpose, key: str, num_bytes: int) -> None:
        """Count bytes that will be taken, for which there has been a `check`, until they are released."""
        self.watch(purpose, key, lambda: num_bytes)

    def watch(self, purpose: Purpose, key: str, left: Callable[[], int]) -> None:
        """Promise what `left` says has not been taken yet, which changes as it is."""
        self._left[purpose, key] = left

    def release(self, key: str) -> None:
        """Count nothing more under a key; one that there is not is ignored."""
        for purpose in get_args(Purpose):
            self._left.pop((purpose, key), None)

    def _promises_in_words(self, but_for: Collection[Purpose]) -> str:
        parts = []
        for purpose in get_args(Purpose):
            num_bytes = sum(left() for (each, _), left in self._left.items() if each == purpose)
            if num_bytes and purpose not in but_for:
                parts.append(f"{_WORDS[purpose]} {show_bytes(num_bytes)}")
        return f" beside what is promised ({', '.join(parts)})" if parts else ""


_WORDS: dict[Purpose, str] = {
    "cache": "key-value caches",
    "request": "gradients of requests",
    "snapshot": "snapshots",
    "pass": "passes",
}
