"""Provenance of a datum's tokens, as its client says: spans of prompts and of sampled sequences.

Spans follow one another and cover a field: `model_input`, or the targets of the loss, of which target t stands behind
token t of the input.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from tinker.proto import tinker_public_pb2 as pb

from cookhouse.errors import InputError


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """Tokens of one sequence, of its prompt or sampled."""

    sequence_id: str
    is_sampled: bool
    offset: int
    """Of the first, within the prompt or what was sampled."""
    length: int
    position: int
    """Of the first, within the field."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """Of a datum. Spans without tokens are left out."""

    input_spans: Sequence[Span]
    target_spans: Sequence[Span]

    def is_sampled(self, num_targets: int) -> NDArray[np.float32]:
        """1 for each target that was sampled, else 0."""
        mask = np.zeros(num_targets, np.float32)
        for span in self.target_spans:
            mask[span.position : span.position + span.length] = span.is_sampled
        return mask


def decode_provenance(datum: pb.Datum, num_tokens: int) -> Provenance:
    """The spans of a datum with so many tokens, and as many targets.

    Raises:
        InputError: there are none, or they do not cover their field.
    """
    return Provenance(
        input_spans=_spans(datum.model_input_spans, "model_input", num_tokens),
        target_spans=_spans(datum.loss_fn_input_spans, "loss_fn_inputs", num_tokens),
    )


def _spans(messages: Sequence[pb.ProvenanceSpan], field: str, num_positions: int) -> Sequence[Span]:
    spans, position = [], 0
    for message in messages:
        kind = message.WhichOneof("span")
        if kind is None:
            raise InputError(f"a span of {field} names neither a prompt nor a sampled sequence")
        one: pb.PromptProvenanceSpan | pb.SampledProvenanceSpan = (
            message.sampled_tokens if kind == "sampled_tokens" else message.prompt_tokens
        )
        if one.offset < 0 or one.length < 0:
            raise InputError(f"a span of {field} has offset {one.offset} and length {one.length}; neither is below 0")
        if one.length:
            span = Span(
                sequence_id=one.sequence_id,
                is_sampled=kind == "sampled_tokens",
                offset=one.offset,
                length=one.length,
                position=position,
            )
            spans.append(span)
        position += one.length
    if position != num_positions:
        raise InputError(
            f"the spans of {field} cover {position} positions of {num_positions}; name the sequence behind each "
            "position by Datum.with_provenance()"
        )
    return spans
