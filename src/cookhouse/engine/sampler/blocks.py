"""Counts of who uses which block of the key-value cache. Integers only: no tensor is touched here."""

from collections.abc import Sequence


class BlockManager:
    """Hands out blocks of `block_size` positions; a block shared by several sequences is freed by the last."""

    def __init__(self, num_blocks: int, block_size: int) -> None:
        self.block_size = block_size
        self.num_blocks = num_blocks
        self._free = list(range(num_blocks - 1, -1, -1))
        self._num_users = [0] * num_blocks

    @property
    def num_free(self) -> int:
        """Blocks that nobody uses."""
        return len(self._free)

    def num_blocks_for(self, num_positions: int) -> int:
        """Blocks that hold a sequence of this many positions."""
        return -(-num_positions // self.block_size)

    def allocate(self, num_blocks: int) -> list[int]:
        """Take free blocks; the caller has checked `num_free`."""
        assert num_blocks <= len(self._free)
        blocks = [self._free.pop() for _ in range(num_blocks)]
        for block in blocks:
            self._num_users[block] = 1
        return blocks

    def share(self, blocks: Sequence[int]) -> None:
        """Add one user to each block."""
        for block in blocks:
            assert self._num_users[block] > 0
            self._num_users[block] += 1

    def free(self, blocks: Sequence[int]) -> None:
        """Take one user from each block."""
        for block in blocks:
            assert self._num_users[block] > 0
            self._num_users[block] -= 1
            if self._num_users[block] == 0:
                self._free.append(block)
