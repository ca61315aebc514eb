"""Blocks of the key-value cache: who uses each, and what it holds. Integers only: no tensor is touched here.

    free, oldest first ──allocate──► used ──remember──► used, known ──free (last user)──► free, still known
                                                            ▲                                   │
                                                            └───────────────share───────────────┘

A full block is known by the tokens in it and by the prefix that they continue. Prefixes are numbered, and no number is
ever used twice, so a lookup compares tokens and nothing stale is found: a prefix whose block was handed out again has
no number that leads on. (The tree of https://arxiv.org/abs/2312.07104, in blocks.)
"""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from itertools import count

_Key = tuple[int, int, tuple[int, ...]]
"""Root, number of the prefix before the block (0: none), tokens in the block."""


_NEVER_USED = -1
_GROWTH = 4
"""Where a block is missing, so many are added that there are a fourth more: memory is measured anew each time."""


class BlockManager:
    """Hands out blocks of `block_size` positions; a block shared by several sequences is freed by the last.

    Where none of `num_blocks` is free, known or not, others are added: up to `num_promised`, and beyond that up to as
    many as `limit` says that there may be by then, of so many that are held; never more than `max_blocks`.
    """

    def __init__(
        self,
        num_blocks: int,
        block_size: int,
        *,
        max_blocks: int | None = None,
        limit: Callable[[int], int] = lambda held: held,
    ) -> None:
        self.block_size = block_size
        self.num_blocks = 0
        self.num_promised = 0
        """Blocks that there will be when they are needed: those of the longest sequence that has been accepted."""
        self._num_used = 0
        self.max_blocks = num_blocks if max_blocks is None else max(max_blocks, num_blocks)
        self._limit = limit
        self._free: OrderedDict[int, None] = OrderedDict()
        self._num_users: list[int] = []
        self._prefixes: list[int] = []
        """Number of the prefix that ends with each block; 0 while the block is not remembered."""
        self._new_prefixes = count(1)
        self._known: dict[_Key, int] = {}
        self._keys: dict[int, _Key] = {}
        self._add(num_blocks)

    @property
    def num_free(self) -> int:
        """Blocks that nobody uses, known or not."""
        return len(self._free)

    @property
    def num_held(self) -> int:
        """Blocks that there are or that are promised."""
        return max(self.num_blocks, self.num_promised)

    @property
    def num_unused(self) -> int:
        """Number of those of `num_held` that no sequence has ever used, so that nothing has been written to them."""
        return self.num_held - self._num_used

    @property
    def num_reachable(self) -> int:
        """Blocks that a single sequence may count on."""
        return max(min(self._limit(self.num_held), self.max_blocks), self.num_held)

    def num_blocks_for(self, num_positions: int) -> int:
        """Blocks that hold a sequence of this many positions."""
        return -(-num_positions // self.block_size)

    def provide(self, num_blocks: int) -> bool:
        """See to it that so many are free; False where there are not and cannot be."""
        missing = num_blocks - len(self._free)
        if missing > 0 and self.num_blocks < self.max_blocks:
            count = min(max(missing, self.num_blocks // _GROWTH), self.num_reachable - self.num_blocks)
            if count >= missing:
                self._add(count)
        return num_blocks <= len(self._free)

    def allocate(self, num_blocks: int) -> list[int]:
        """Take the free blocks that were used least recently; the caller has had them provided."""
        assert num_blocks <= len(self._free)
        blocks = [self._free.popitem(last=False)[0] for _ in range(num_blocks)]
        for block in blocks:
            self._num_used += self._num_users[block] == _NEVER_USED
            self._num_users[block] = 1
            self._prefixes[block] = 0
            if block in self._keys:
                del self._known[self._keys.pop(block)]
        return blocks

    def share(self, blocks: Sequence[int]) -> None:
        """Add one user to each block, which is used, or free and known."""
        for block in blocks:
            if self._num_users[block] == 0:
                assert block in self._keys
                del self._free[block]
            self._num_users[block] += 1

    def free(self, blocks: Sequence[int]) -> None:
        """Take one user from each of a sequence's blocks. Its end is handed out again before its beginning."""
        for block in reversed(blocks):
            assert self._num_users[block] > 0
            self._num_users[block] -= 1
            if self._num_users[block] == 0:
                self._free[block] = None
                if block not in self._keys:
                    self._free.move_to_end(block, last=False)

    def remember(self, root: int, blocks: Sequence[int], index: int, tokens: Sequence[int]) -> None:
        """Note that `blocks[index]` of a sequence is full, of these tokens; those before it have been remembered.

        `root` is whose keys and values they are: blocks of unequal roots never match.
        """
        block = blocks[index]
        key = root, self._prefixes[blocks[index - 1]] if index else 0, tuple(tokens)
        if key in self._known:  # Computed twice at once; the first stays, and what follows either one can be found.
            self._prefixes[block] = self._prefixes[self._known[key]]
        else:
            self._prefixes[block] = next(self._new_prefixes)
            self._known[key] = block
            self._keys[block] = key

    def find(self, root: int, tokens: Sequence[int]) -> list[int]:
        """Known blocks of the longest prefix of these tokens, always short of the last one."""
        blocks: list[int] = []
        prefix = 0
        for start in range(0, len(tokens) - self.block_size, self.block_size):
            block = self._known.get((root, prefix, tuple(tokens[start : start + self.block_size])))
            if block is None:
                break
            blocks.append(block)
            prefix = self._prefixes[block]
        return blocks

    def prefix(self, block: int) -> int:
        """Number of the prefix that ends with a block; 0 where it is not remembered."""
        return self._prefixes[block]

    def _add(self, num_blocks: int) -> None:
        added = range(self.num_blocks, self.num_blocks + num_blocks)
        for block in reversed(added):  # before those that hold something known
            self._free[block] = None
            self._free.move_to_end(block, last=False)
        self._num_users += [_NEVER_USED] * num_blocks
        self._prefixes += [0] * num_blocks
        self.num_blocks += num_blocks
