"""Packed sequences cut into chunks, for the chunked form of the delta rule. Integers only, but for the last step.

A sequence is cut where its positions are multiples of `CHUNK`, wherever its rows begin: what is read in pieces that end
there gets the same chunks as what is read at once.

Legend: M chunks of a wave, T positions of a chunk, R of them that are not padding, A sequences of a step.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

CHUNK = 64
"""Positions; more would square in time, and fewer would leave products small."""
_WAVE_CHUNKS = 64
"""Chunks that are computed at once: memory beyond inputs and outputs is that of so many."""


@dataclass(frozen=True, slots=True)
class DeltaSpan:
    """A run of packed rows that are consecutive positions of one sequence."""

    row: int
    length: int
    position: int = 0
    """Of the first row."""
    slots: Mapping[int, int] = field(default_factory=dict)
    """Where the state after so many positions of the sequence goes."""


@dataclass(frozen=True, slots=True)
class Wave:
    """Steps one after the other, each of one chunk of every sequence that is that long."""

    rows_MT: Tensor
    """Packed rows of the chunks; padding repeats a chunk's first row."""
    is_padding_MT: Tensor
    real_R: Tensor
    """Positions of the flattened chunks that are not padding."""
    counts: Sequence[int]
    """Chunks of each step; they belong to the first sequences of the group."""
    saved: Sequence[Sequence[tuple[int, int]]]
    """By step: sequences of the group whose state is wanted after it, and the slots that it goes to."""


@dataclass(frozen=True, slots=True)
class Group:
    """Sequences that are computed together, those of most chunks first. `members` are their numbers."""

    members: Sequence[int]
    waves: Sequence[Wave]


def groups_of(spans: Sequence[DeltaSpan], device: torch.device) -> list[Group]:
    """All spans in groups of bounded size."""
    cuts = [_cuts(span) for span in spans]
    order = sorted(range(len(spans)), key=lambda index: -len(cuts[index]))
    parts = [order[start : start + _WAVE_CHUNKS] for start in range(0, len(order), _WAVE_CHUNKS)]
    return [Group(part, _waves([spans[i] for i in part], [cuts[i] for i in part], device)) for part in parts]


def _cuts(span: DeltaSpan) -> list[int]:
    """Offsets from the first row at which chunks begin, and the length."""
    first = CHUNK - span.position % CHUNK
    return [0, *range(first, span.length, CHUNK), span.length]


def _waves(spans: Sequence[DeltaSpan], cuts: Sequence[Sequence[int]], device: torch.device) -> list[Wave]:
    waves: list[Wave] = []
    steps: list[int] = []
    num_chunks = 0
    for step in range(len(cuts[0]) - 1):
        count = sum(len(each) - 1 > step for each in cuts)
        if steps and num_chunks + count > _WAVE_CHUNKS:
            waves.append(_wave(spans, cuts, steps, device))
            steps, num_chunks = [], 0
        steps.append(step)
        num_chunks += count
    return [*waves, _wave(spans, cuts, steps, device)]


def _wave(
    spans: Sequence[DeltaSpan], cuts: Sequence[Sequence[int]], steps: Sequence[int], device: torch.device
) -> Wave:
    firsts, lengths, counts, saved = [], [], [], []
    for step in steps:
        active = [(span, each) for span, each in zip(spans, cuts, strict=True) if len(each) - 1 > step]
        firsts += [span.row + each[step] for span, each in active]
        lengths += [each[step + 1] - each[step] for _, each in active]
        ends = [span.position + each[step + 1] for span, each in active]
        counts.append(len(active))
        saved.append(
            [
                (i, span.slots[end])
                for i, ((span, _), end) in enumerate(zip(active, ends, strict=True))
                if end in span.slots
            ]
        )
    offsets_MT = np.broadcast_to(np.arange(CHUNK), (len(firsts), CHUNK))
    is_padding_MT = offsets_MT >= np.array(lengths)[:, None]
    rows_MT = np.array(firsts)[:, None] + np.where(is_padding_MT, 0, offsets_MT)
    # Found on the host: a GPU would be waited for in every layer.
    real_R = np.flatnonzero(~is_padding_MT)
    rows, is_padding, real = (torch.from_numpy(array).to(device) for array in (rows_MT, is_padding_MT, real_R))
    return Wave(rows, is_padding, real, counts, saved)
