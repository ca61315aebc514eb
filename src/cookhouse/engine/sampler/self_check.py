"""Check that a base model gives the same through the sampler's cache as in one pass."""

import numpy as np
import torch

from cookhouse.engine.contract import SampleRequest
from cookhouse.engine.model.base_model import BaseModel
from cookhouse.engine.sampler.runner import Runner
from cookhouse.engine.sampler.scheduler import Piece
from cookhouse.engine.sampler.sequence import Sequence
from cookhouse.errors import InputError

_BLOCK_SIZE = 16


@torch.no_grad()
def check_cached(base: BaseModel) -> None:
    """Read beginnings of one sequence, of all lengths and in one pass, and in a second one the token after each.

    Two passes over 15 and 5 tokens.

    Raises:
        InputError: what is computed for those tokens is not what a pass without a cache gives.
    """
    published = base.published
    if published is None:
        return
    tokens = published.tokens_T.tolist()
    counts = range(1, len(tokens))
    num_states = 2 * len(counts) if base.state_shapes else 0
    runner = Runner(
        base,
        len(counts),
        _BLOCK_SIZE,
        num_states=num_states,
        max_running=len(counts),
        is_native=False,
        capture=None,
    )
    sequences = [_sequence(tokens[: count + 1], block) for block, count in enumerate(counts)]
    nothing = [None] * len(counts)
    runner.run([Piece(each, 0, len(each.tokens) - 1) for each in sequences], nothing, with_hidden=True)
    for each in sequences:  # each reads the state that it wrote, and writes another
        each.state = each.next_states.pop(len(each.tokens) - 1)
        each.next_states[len(each.tokens)] = len(counts) + each.state
    last = [Piece(each, len(each.tokens) - 1, len(each.tokens)) for each in sequences]
    hidden_NH = runner.run(last, nothing, with_hidden=True).hidden_NH
    try:
        published.check_hidden("hidden states from its cache", hidden_NH, slice(1, None))
    except InputError as error:
        raise InputError(f"base model {base.name!r}: {error}") from error


def _sequence(tokens: list[int], block: int) -> Sequence:
    request = SampleRequest(
        request_id="", base_model="", snapshot_id=None, prompt_T=np.array(tokens), seed=0, max_tokens=1
    )
    return Sequence(
        request=request,
        index=0,
        tokens=tokens,
        num_prompt=len(tokens) - 1,
        max_total=len(tokens),
        seed=0,
        stop_tokens=frozenset(),
        stop_strings=(),
        blocks=[block],
        next_states={len(tokens) - 1: block},
    )
