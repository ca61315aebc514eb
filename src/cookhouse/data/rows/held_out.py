"""Choice of held-out prompts where no test set is given: a prompt with all of its rows, so that none of these is lost
to training and none is trained on while it is asked about.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

import numpy as np

from cookhouse.chat import Message
from cookhouse.errors import InputError


class Prompted(Protocol):
    """A row about answers to a prompt, or to one each."""

    @property
    def prompts(self) -> tuple[list[Message], ...]: ...


R = TypeVar("R", bound=Prompted)


def prompt_key(prompt: list[Message]) -> str:
    """The key of a prompt."""
    return json.dumps(prompt, sort_keys=True)


def held_out_prompts(
    rows: Sequence[R], fraction: float, seed: int, kind_of: Callable[[R], object] = lambda _: None
) -> frozenset[str]:
    """Keys of the prompts to hold out: with all of their rows about `fraction` of these, of each kind of rows. They
    hang on the rows and the seed alone. Rows must have one prompt each.

    Raises:
        InputError: rows of a kind have too few prompts to stand on both sides.
    """
    kinds: dict[object, list[str]] = {}
    for row in rows:
        kinds.setdefault(kind_of(row), []).append(prompt_key(row.prompts[0]))
    held_out: set[str] = set()
    decided: set[str] = set()
    # The rarest first: what is held out of it takes rows of the others with it.
    for keys in sorted(kinds.values(), key=len):
        sizes = Counter(keys)
        room = _count(len(keys), fraction) - sum(sizes[key] for key in held_out)
        open_keys = [key for key in sizes if key not in decided]
        decided.update(sizes)
        if room > 0:
            held_out |= _drawn(open_keys, sizes, room, seed)
        if held_out.issuperset(sizes) or held_out.isdisjoint(sizes):
            raise InputError(
                f"eval_fraction holds out prompts with all of their rows, and {len(keys):,} rows share too few prompts "
                f"({len(sizes):,}) to be apart; give test_path, or rows with more prompts"
            )
    return frozenset(held_out)


def is_drawn(prompt: list[Message], fraction: float, seed: int) -> bool:
    """True if a prompt is among those held out of rows that are not read as a whole: each is with the probability
    `fraction`, by its text and the seed alone.
    """
    digest = hashlib.sha256(f"{seed}/{prompt_key(prompt)}".encode()).digest()
    return int.from_bytes(digest[:8]) < fraction * 2**64


def _count(num_rows: int, fraction: float) -> int:
    """Rows to hold out; some are always left to train on."""
    return max(1, min(round(num_rows * fraction), num_rows - 1))


def _drawn(keys: Sequence[str], sizes: Counter[str], room: int, seed: int) -> set[str]:
    """Keys in an order drawn from the seed, each that still has room; where none has, the one with the fewest rows."""
    drawn: set[str] = set()
    for index in np.random.default_rng(seed).permutation(len(keys)):
        if sizes[keys[index]] <= room:
            drawn.add(keys[index])
            room -= sizes[keys[index]]
    if not drawn and len(keys) > 1:
        drawn.add(min(keys, key=lambda key: sizes[key]))
    return drawn
