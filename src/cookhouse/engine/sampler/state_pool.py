"""States of recurrent layers of sequences being sampled, and the pass over them.

Legend: N packed positions of a pass, P pieces, B pieces of one position, J inputs that a convolution reads again, C
channels, V value heads, E features of a value, X states that a pass writes.
"""

import itertools
from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import silu

from cookhouse.engine.kernels.upload import upload
from cookhouse.engine.model.attention import AttentionLayout
from cookhouse.engine.model.delta import DeltaInputs, DeltaSpan, StateShape
from cookhouse.engine.model.delta.chunks import Wave, groups_of
from cookhouse.engine.model.delta.convolution import Earlier, convolve, inside_of
from cookhouse.engine.model.delta.packed import put_rows, run_wave
from cookhouse.engine.model.delta.rule import run_position
from cookhouse.engine.sampler.scheduler import Piece


class StatePool:
    """By layer, the recurrent states and the last inputs of the convolution of each slot. The slot after the last holds
    zeros, with which every sequence begins.
    """

    def __init__(
        self, shapes: Mapping[int, StateShape], num_slots: int, device: torch.device, dtype: torch.dtype
    ) -> None:
        self.zero_slot = num_slots
        self.num_earlier = next(iter(shapes.values())).num_taps - 1
        self.recurrent = {
            layer: torch.empty(num_slots + 1, *shape.recurrent, device=device) for layer, shape in shapes.items()
        }
        self.convolution = {
            layer: torch.empty(num_slots + 1, *shape.convolution, device=device, dtype=dtype)
            for layer, shape in shapes.items()
        }
        for tensor in (*self.recurrent.values(), *self.convolution.values()):
            tensor[num_slots].zero_()


class StateLayout:
    """A layout for attention, and with it the states: each piece reads one slot and writes to others."""

    def __init__(
        self, attention: AttentionLayout, pool: StatePool, pieces: Sequence[Piece], device: torch.device
    ) -> None:
        self.attend = attention.attend
        self._pool = pool
        lengths = [piece.stop - piece.start for piece in pieces]
        rows = list(itertools.accumulate(lengths[:-1], initial=0))
        states = [piece.sequence.state for piece in pieces]
        reads_P = np.array([pool.zero_slot if state is None else state for state in states])
        ones = [index for index, length in enumerate(lengths) if length == 1]
        others = [index for index, length in enumerate(lengths) if length > 1]
        to_device = partial(upload, device=device)
        self._reads_P = to_device(reads_P)
        self._rows_B = to_device(np.array(rows, np.int64)[ones])
        self._reads_B = to_device(reads_P[ones])
        self._writes_B = to_device(np.array([_writes(pieces[i])[pieces[i].stop] for i in ones], np.int64))
        spans = [DeltaSpan(rows[i], lengths[i], pieces[i].start, _writes(pieces[i])) for i in others]
        self._groups = [
            (group, to_device(reads_P[[others[member] for member in group.members]]))
            for group in (groups_of(spans, device) if spans else ())
        ]
        self._inside = inside_of(lengths, pool.num_earlier + 1, device)
        self._earlier = []
        for distance in range(1, pool.num_earlier + 1):
            with_earlier, places = _rows_with_earlier(rows, lengths, distance, pool.num_earlier)
            self._earlier.append((to_device(with_earlier), to_device(places)))
        slots_X, places_XJ = _last_inputs(pieces, rows, sum(lengths), pool.num_earlier)
        self._slots_X, self._places_XJ = to_device(slots_X), to_device(places_XJ)

    def recur(self, layer: int, inputs: DeltaInputs) -> Tensor:
        """See `DeltaLayout`. Not differentiable."""
        mixed_NC = self._convolve(self._pool.convolution[layer], inputs)
        parts = mixed_NC, inputs.decay_NV, inputs.beta_NV
        states = self._pool.recurrent[layer]
        out_NVE = mixed_NC.new_empty(len(mixed_NC), inputs.shape.num_value_heads, inputs.shape.value_dim)
        if len(self._rows_B):
            state = states[self._reads_B]
            mixed_BC, decay_BV, beta_BV = (x[self._rows_B] for x in parts)
            out_BVE = run_position(mixed_BC, decay_BV, beta_BV, state, inputs.shape)
            out_NVE[self._rows_B] = out_BVE.to(out_NVE.dtype)
            states[self._writes_B] = state
        for group, reads in self._groups:
            state = states[reads]
            for wave in group.waves:
                out, state = run_wave(parts, inputs.shape, wave, state, partial(_save, states, wave))
                put_rows(out_NVE, wave, out)
        return out_NVE

    def _convolve(self, states: Tensor, inputs: DeltaInputs) -> Tensor:
        earlier_PC = states[self._reads_P].flatten(0, 1)
        x_NC = inputs.mixed_NC
        sums_NC = convolve(x_NC, inputs.taps_CW, self._inside, Earlier(earlier_PC, self._earlier))
        states[self._slots_X] = torch.cat([x_NC, earlier_PC])[self._places_XJ]
        return silu(sums_NC).to(x_NC.dtype)


def _save(states: Tensor, wave: Wave, step: int, after: Tensor) -> None:
    for member, slot in wave.saved[step]:
        states[slot] = after[member]


def _writes(piece: Piece) -> Mapping[int, int]:
    return piece.sequence.next_states


def _rows_with_earlier(
    rows: Sequence[int], lengths: Sequence[int], distance: int, num_earlier: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows that read an input from before their piece at some distance, and its place among those of all pieces."""
    pairs = [
        (row + offset, index * num_earlier + num_earlier + offset - distance)
        for index, (row, length) in enumerate(zip(rows, lengths, strict=True))
        for offset in range(min(distance, length))
    ]
    found = np.array(pairs, np.int64).reshape(-1, 2)
    return found[:, 0], found[:, 1]


def _last_inputs(
    pieces: Sequence[Piece], rows: Sequence[int], num_rows: int, num_earlier: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Slots that a pass writes to, and the places of the last inputs before each, the rows counted first and then
    those from before the pieces.
    """
    slots, places = [], []
    for index, (piece, row) in enumerate(zip(pieces, rows, strict=True)):
        for position, slot in _writes(piece).items():
            offsets = range(position - piece.start - num_earlier, position - piece.start)
            before = num_rows + (index + 1) * num_earlier
            slots.append(slot)
            places.append([row + offset if offset >= 0 else before + offset for offset in offsets])
    return np.array(slots, np.int64), np.array(places, np.int64)
