"""Sequences laid end to end without padding, in passes under a token budget."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Pack:
    """Datums of one pass, by index, in the order they lie. The pass holds `sum(lengths)` positions."""

    indices: tuple[int, ...]
    lengths: tuple[int, ...]

    @property
    def num_tokens(self) -> int:
        """Positions in the pass."""
        return sum(self.lengths)


def pack(lengths: Sequence[int], budget_tokens: int) -> list[Pack]:
    """Split datums into passes of at most `budget_tokens` positions; one longer than the budget gets its own pass.

    Longest first into the first pass with room: few passes, and neighbors of like length, which attention pads least.
    Depends on the lengths alone.
    """
    passes: list[list[int]] = []
    room: list[int] = []
    for index in sorted(range(len(lengths)), key=lambda i: (-lengths[i], i)):
        length = lengths[index]
        slot = next((i for i, left in enumerate(room) if left >= length), None)
        if slot is None:
            passes.append([])
            room.append(max(budget_tokens, length))
            slot = len(passes) - 1
        passes[slot].append(index)
        room[slot] -= length
    return [Pack(tuple(members), tuple(lengths[i] for i in members)) for members in passes]
