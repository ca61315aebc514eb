"""Catches blocks that are found under tokens they do not hold, or handed out while they are used."""

import numpy as np
import pytest

from cookhouse.engine.sampler.blocks import BlockManager

TOKENS = list(range(100, 112))


def _fill(manager: BlockManager, tokens: list[int], root: int = 0) -> list[int]:
    """Blocks of a sequence that was computed whole, one use of each."""
    blocks = manager.find(root, tokens)
    manager.share(blocks)
    num_found = len(blocks)
    blocks += manager.allocate(manager.num_blocks_for(len(tokens)) - num_found)
    for index in range(num_found, len(tokens) // manager.block_size):
        manager.remember(root, blocks, index, tokens[index * manager.block_size : (index + 1) * manager.block_size])
    return blocks


def test_a_prefix_is_found_while_used_and_after_but_never_up_to_the_last_token() -> None:
    manager = BlockManager(8, 4)
    blocks = _fill(manager, TOKENS)
    for _ in range(2):
        assert manager.find(0, [*TOKENS, 1]) == blocks
        assert manager.find(0, TOKENS) == blocks[:2]
        assert manager.find(0, TOKENS[:9]) == blocks[:2]
        assert manager.find(0, TOKENS[:7]) == blocks[:1]
        assert manager.find(0, TOKENS[:4]) == []
        assert manager.find(0, []) == []
        if manager.num_free < 8:
            manager.free(blocks)


def test_other_weights_other_tokens_and_the_same_tokens_elsewhere_find_nothing() -> None:
    manager = BlockManager(8, 4)
    blocks = _fill(manager, TOKENS, root=3)
    assert manager.find(0, TOKENS) == []
    assert manager.find(4, TOKENS) == []
    assert manager.find(3, TOKENS[4:]) == []
    assert manager.find(3, [*TOKENS[:7], 0, *TOKENS[8:], 1]) == blocks[:1]


def test_the_least_recently_used_block_goes_first_and_ends_before_beginnings() -> None:
    manager = BlockManager(6, 4)
    old, new = _fill(manager, TOKENS), _fill(manager, [token + 50 for token in TOKENS])
    manager.free(old)
    manager.free(new)
    assert manager.allocate(2) == [old[2], old[1]]
    assert manager.find(0, TOKENS) == old[:1]
    manager.share(old[:1])
    assert manager.allocate(1) == [new[2]]
    assert manager.num_free == 2


def test_blocks_that_hold_nothing_known_go_before_any_that_do() -> None:
    manager = BlockManager(4, 4)
    manager.free(_fill(manager, TOKENS[:8]))
    partial = manager.allocate(1)
    manager.free(partial)
    assert manager.allocate(1) == partial


def test_what_follows_a_block_that_was_handed_out_again_is_not_found() -> None:
    manager = BlockManager(3, 4)
    blocks = _fill(manager, TOKENS)
    manager.free(blocks[:1])
    assert manager.allocate(1) == blocks[:1]
    assert manager.find(0, [*TOKENS, 1]) == []
    manager.remember(0, blocks, 0, [1, 2, 3, 4])
    assert manager.find(0, [1, 2, 3, 4, *TOKENS[4:], 1]) == blocks[:1]


def test_a_prefix_computed_twice_at_once_is_kept_once_and_continues_from_either() -> None:
    manager = BlockManager(8, 4)
    first, second = manager.allocate(2), manager.allocate(3)
    for blocks in (first, second):
        for index in range(2):
            manager.remember(0, blocks, index, TOKENS[index * 4 : index * 4 + 4])
    manager.remember(0, second, 2, TOKENS[8:])
    assert manager.find(0, [*TOKENS, 1]) == [*first, second[2]]


@pytest.mark.parametrize("seed", range(20))
def test_random_use_finds_only_what_blocks_hold_and_leaks_none(seed: int) -> None:
    rng = np.random.default_rng(seed)
    manager = BlockManager(12, 2)
    held: list[list[int]] = []
    contents: dict[int, tuple[int, list[int]]] = {}
    num_found = 0
    for _ in range(300):
        if held and rng.random() < 0.5:
            manager.free(held.pop(rng.integers(len(held))))
        root, tokens = int(rng.integers(2)), rng.integers(0, 2, rng.integers(1, 8)).tolist()
        found = manager.find(root, tokens)
        num_found += len(found)
        for index, block in enumerate(found):
            assert contents[block] == (root, tokens[: 2 * index + 2])
        if manager.num_free < 4:
            continue
        blocks = _fill(manager, tokens, root)
        for index in range(len(found), len(tokens) // 2):
            assert not any(blocks[index] in other for other in held)
            contents[blocks[index]] = root, tokens[: 2 * index + 2]
        held.append(blocks)
        assert manager.num_free == 12 - len({block for other in held for block in other})
    assert num_found > 50
    for blocks in held:
        manager.free(blocks)
    assert manager.num_free == 12
