"""What a step reads is what its pieces are, whichever sequences join, leave, move and grow between steps."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from cookhouse.engine.sampler.scheduler import Piece
from cookhouse.engine.sampler.step_inputs import StepInputs

CPU = torch.device("cpu")
CACHE: Any = SimpleNamespace(block_size=16, scratch_block=10)


def _piece(num_tokens: int, blocks: list[int]) -> Piece:
    """The last position of a sequence whose tokens are 0, 1, 2, …"""
    sequence: Any = SimpleNamespace(tokens=list(range(num_tokens)), blocks=blocks)
    return Piece(sequence, num_tokens - 1, num_tokens)


def _check(inputs: StepInputs, pieces: list[Piece], num_rows: int, num_blocks: int) -> None:
    """By hand for each row, padding among them."""
    tokens_N, positions_N, slots_N = (x.tolist() for x in inputs.longs(num_rows))
    contexts_N, tables_NM = inputs.contexts(num_rows).tolist(), inputs.tables(num_rows, num_blocks).tolist()
    for row in range(num_rows):
        blocks, position = ([10], 0) if row >= len(pieces) else (pieces[row].sequence.blocks, pieces[row].start)
        count = position // 16 + 1
        assert (tokens_N[row], positions_N[row], contexts_N[row]) == (position, position, position + 1)
        assert slots_N[row] == blocks[count - 1] * 16 + position % 16
        assert tables_NM[row][:count] == blocks[:count]
    assert inputs.starts(num_rows).tolist() == list(range(num_rows + 1))


def test_a_step_is_laid_out_for_its_pieces_and_padding() -> None:
    """Would catch rows that write into a block of another sequence."""
    inputs = StepInputs(CACHE, CPU, max_rows=4, max_blocks=3)
    pieces = [_piece(17, [3, 1]), _piece(16, [7]), _piece(33, [2, 5, 0])]
    inputs.write(pieces, 4, 3)
    assert torch.stack(inputs.longs(4)).tolist() == [[16, 15, 32, 0], [16, 15, 32, 0], [16, 7 * 16 + 15, 0, 160]]
    assert inputs.contexts(4).tolist() == [17, 16, 33, 1]
    _check(inputs, pieces, 4, 3)


@pytest.mark.parametrize("seed", range(5))
def test_tables_follow_their_sequences(seed: int) -> None:
    """Would catch a table that stays in a row which went to another sequence, one that is read before it has moved, one
    of a sequence that began anew in other blocks, and tables of another width.
    """
    rng = np.random.default_rng(seed)
    inputs = StepInputs(CACHE, CPU, max_rows=8, max_blocks=40)
    pieces: list[Piece] = []
    for _ in range(150):
        pieces = [_piece(piece.stop + 1, piece.sequence.blocks) for piece in pieces if rng.random() > 0.05]
        for index, piece in enumerate(pieces):
            if rng.random() < 0.03:  # preempted, and read again
                pieces[index] = _piece(piece.stop, rng.integers(0, 10, -(-piece.stop // 16)).tolist())
        if len(pieces) < 8 and rng.random() < 0.4:
            length = int(rng.integers(1, 200))
            new = _piece(length, rng.integers(0, 10, -(-length // 16)).tolist())
            pieces.insert(int(rng.integers(0, len(pieces) + 1)), new)
        for piece in pieces:
            while len(piece.sequence.blocks) * 16 < piece.stop:
                piece.sequence.blocks.append(int(rng.integers(0, 10)))
        longest = max((len(piece.sequence.blocks) for piece in pieces), default=1)
        if rng.random() < 0.05:
            inputs.forget()
        num_rows, num_blocks = min(len(pieces) + int(rng.integers(0, 3)), 8), 10 if longest <= 10 else 40
        inputs.write(pieces, num_rows, num_blocks)
        _check(inputs, pieces, num_rows, num_blocks)


def test_a_step_sends_what_changed_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Would catch the host busy with the tables of all sequences in each step."""
    sent: list[int] = []
    inputs = StepInputs(CACHE, CPU, max_rows=8, max_blocks=40)
    copy = torch.Tensor.index_copy_

    def count(self: Any, dim: int, index: Any, source: Any) -> Any:
        sent.append(index.numel())
        return copy(self, dim, index, source)

    monkeypatch.setattr(torch.Tensor, "index_copy_", count)
    blocks = [list(range(9)) for _ in range(3)]
    for length in (128, 129, 130):
        inputs.write([_piece(length, own) for own in blocks], 4, 10)
    assert sent == [3 * 8 + 1, 3]  # with one row of padding; then the ninth block of each; then nothing
    inputs.write([_piece(length, own) for own in blocks[1:]], 4, 10)
    assert sent[2:] == [3, 1]  # two sequences and a row of padding moved, and one more is padding
    _check(inputs, [_piece(length, own) for own in blocks[1:]], 4, 10)


def test_a_write_that_fails_is_made_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """Would catch tables that the host takes for sent, when memory ran out on the way."""
    inputs = StepInputs(CACHE, CPU, max_rows=2, max_blocks=3)
    pieces = [_piece(17, [3, 1]), _piece(16, [7])]
    with monkeypatch.context() as patch:
        patch.setattr(torch.Tensor, "index_copy_", lambda *_: 1 // 0)
        with pytest.raises(ZeroDivisionError):
            inputs.write(pieces, 2, 3)
    inputs.write(pieces, 2, 3)
    _check(inputs, pieces, 2, 3)
