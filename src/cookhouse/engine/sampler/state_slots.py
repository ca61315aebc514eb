"""Slots of states of the recurrent layers: who uses each, and after which prefix it was kept. Integers only.

A state is written once. A pass reads the one that a sequence has and writes another, so that a pass that failed can be
repeated, and samples of one prompt share theirs. States after some positions of a prompt are remembered by the number
of the prefix that ends there (see `BlockManager`), until nobody uses them and their slot is needed.
"""

from collections import OrderedDict
from collections.abc import Sequence as Seq

from cookhouse.engine.sampler.blocks import BlockManager
from cookhouse.engine.sampler.sequence import Sequence

_STATE_SHARE = 0.5
"""Of a cache, at most, for states."""
_KEPT_SHARE = 0.25
"""Of the states, for those after the beginnings of prompts."""
_MOST_KEPT = 64


def share_of_states(cache_bytes: int, state_bytes: int, max_running: int) -> tuple[int, int]:
    """Sequences that may run at once in a cache of this size, `max_running` at most, and states kept besides theirs."""
    if not state_bytes:
        return max_running, 0
    num_states = int(cache_bytes * _STATE_SHARE) // state_bytes
    num_kept = min(int(num_states * _KEPT_SHARE), _MOST_KEPT)
    return min(max((num_states - num_kept) // 2, 1), max_running), num_kept


class StateSlots:
    """Slots for the states of `max_running` sequences, before and after a pass, and for `num_kept` others.

    States are kept after multiples of `stride` positions, which is one of the block size: of what a prompt shares with
    an earlier one, and of all but its end.
    """

    def __init__(self, blocks: BlockManager, *, max_running: int, num_kept: int, stride: int) -> None:
        assert stride % blocks.block_size == 0
        self.num_slots = 2 * max_running + num_kept
        self.num_unused = self.num_slots
        """Slots that nothing has ever been written to."""
        self._blocks = blocks
        self._stride = stride
        self._max_keeping = num_kept
        self._num_keeping = 0
        """Slots that passes under way write to for others."""
        self._free: OrderedDict[int, None] = OrderedDict.fromkeys(range(self.num_slots))
        """Those that nobody uses: first what holds nothing, then what was used least recently."""
        self._num_users = [0] * self.num_slots
        self._is_new = [True] * self.num_slots
        self._known: dict[int, int] = {}
        """Slot by number of a prefix."""
        self._keys: dict[int, int] = {}

    def reuse(self, sequence: Sequence, blocks: Seq[int]) -> list[int]:
        """Start a sequence of which the cache knows these blocks: those up to the last state that is known, which it
        shares. It will keep the states that later sequences may start from.
        """
        size, length = self._blocks.block_size, len(sequence.tokens)
        branch, end = len(blocks) * size, length - 1
        sequence.kept_positions = {position // self._stride * self._stride for position in (branch, end)}
        for count in range(branch // self._stride * self._stride // size, 0, -self._stride // size):
            slot = self._known.get(self._blocks.prefix(blocks[count - 1]))
            if slot is not None:
                self._share(slot)
                sequence.state = slot
                return list(blocks[:count])
        return []

    def begin(self, sequence: Sequence, stop: int) -> None:
        """Give a sequence the slots that the pass up to `stop` writes to."""
        assert not sequence.next_states
        for position in sorted(sequence.kept_positions):
            if sequence.num_cached < position < stop and self._num_keeping < self._max_keeping:
                self._num_keeping += 1
                sequence.next_states[position] = self._take()
        sequence.next_states[stop] = self._take()

    def commit(self, sequence: Sequence) -> None:
        """Take note that the pass was computed; its blocks have been remembered, and `num_cached` is its end."""
        size = self._blocks.block_size
        for position, slot in sequence.next_states.items():
            if position in sequence.kept_positions:
                self._remember(self._blocks.prefix(sequence.blocks[position // size - 1]), slot)
        state = sequence.next_states.pop(sequence.num_cached)
        self._num_keeping -= len(sequence.next_states)
        self._put_back(sequence)
        sequence.state = state

    def fork(self, parent: Sequence, child: Sequence) -> None:
        """Let a sequence go on from where another one is."""
        if parent.state is not None:
            self._share(parent.state)
            child.state = parent.state

    def release(self, sequence: Sequence) -> None:
        """Take from a sequence all that it has."""
        self._num_keeping -= max(len(sequence.next_states) - 1, 0)
        self._put_back(sequence)

    def _take(self) -> int:
        slot, _ = self._free.popitem(last=False)
        if slot in self._keys:
            del self._known[self._keys.pop(slot)]
        self.num_unused -= self._is_new[slot]
        self._is_new[slot] = False
        self._num_users[slot] = 1
        return slot

    def _share(self, slot: int) -> None:
        self._free.pop(slot, None)
        self._num_users[slot] += 1

    def _put_back(self, sequence: Sequence) -> None:
        slots = [*sequence.next_states.values(), *(() if sequence.state is None else (sequence.state,))]
        sequence.next_states, sequence.state = {}, None
        for slot in slots:
            self._num_users[slot] -= 1
            if self._num_users[slot] == 0:
                self._free[slot] = None
                if slot not in self._keys:
                    self._free.move_to_end(slot, last=False)

    def _remember(self, prefix: int, slot: int) -> None:
        if prefix not in self._known:  # else computed twice at once
            self._known[prefix] = slot
            self._keys[slot] = prefix
