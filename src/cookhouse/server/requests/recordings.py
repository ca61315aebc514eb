"""Recordings of sampled sequences, for training on them by `stable_reinforce`, and the check of data against them.

A datum names the sequence behind each of its positions. All of it is checked: that the sequence is of the same session,
that each of its tokens stands behind what it was sampled behind, and that the log-probabilities are the sampler's. The
ratio of the loss is then one of probabilities of the same token in the same context.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cookhouse.engine.contract import ForwardBackward, SampledSequence, SampleOutput, SampleRequest, TrainingDatum
from cookhouse.errors import InputError
from cookhouse.server.storage.journal import AddRecording, Journal
from cookhouse.server.storage.store.rows import RecordingRow
from cookhouse.server.storage.store.store import Store
from cookhouse.server.wire import Provenance, Span, TrainingHead, provenance_of

_INPUTS = "target_tokens", "logprobs", "advantages", "is_sampled"
_TOKEN, _LOGPROB = np.dtype("<i4"), np.dtype("<f4")
_ROW_BYTES = 512
"""Bytes that the database takes for a sequence besides its content."""


def sequence_ids(request_id: str, num_samples: int) -> Sequence[str]:
    """The ids of the sequences that a sampling request gives."""
    return [f"{request_id}-{index}" for index in range(num_samples)]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sequence:
    num_prompt_tokens: int
    prompt_sha256: str
    tokens_T: NDArray[np.int32]
    logprobs_T: NDArray[np.float32]


class Recordings:
    def __init__(self, store: Store, journal: Journal | None, *, max_bytes: int) -> None:
        """`max_bytes`: of the sequences that one request may name."""
        self._store = store
        self._journal = journal
        self._max_bytes = max_bytes

    async def add(self, session_id: str, owner: str, request: SampleRequest, output: SampleOutput) -> None:
        """Keep what a request has sampled. Returns when it is on the disk, where there is a journal."""
        names, created_at = sequence_ids(request.request_id, len(output.sequences)), self._store.clock.now()
        prompt_sha256 = _digest(request.prompt_T)
        rows = [
            RecordingRow(
                sequence_id=name,
                session_id=session_id,
                owner=owner,
                created_at=created_at,
                num_prompt_tokens=len(request.prompt_T),
                prompt_sha256=prompt_sha256,
                num_bytes=len(content) + _ROW_BYTES,
                content=content,
            )
            for name, content in zip(names, map(_encode, output.sequences), strict=True)
        ]
        if self._journal is not None:
            await self._journal.commit.commit(*map(AddRecording, rows))
            return
        for row in rows:
            self._store.add_recording(row)

    def check(self, session_id: str, owner: str, head: TrainingHead, request: ForwardBackward) -> None:
        """Check what the datums of a request say of where they come from. Blocking.

        Raises:
            InputError: they were not recorded, or are not what was, or name too much of it.
        """
        origins = provenance_of(head, [len(datum.tokens_T) for datum in request.data_D])
        spans = [span for origin in origins for span in (*origin.input_spans, *origin.target_spans)]
        names = {span.sequence_id for span in spans}
        rows = self._store.recordings(session_id, owner, names, max_bytes=self._max_bytes)
        sequences = {row.sequence_id: _decode(row) for row in rows}
        for index, (datum, origin) in enumerate(zip(request.data_D, origins, strict=True)):
            try:
                _check_datum(datum, origin, sequences)
            except InputError as error:
                raise InputError(f"datum {index}: {error}") from None


def _check_datum(datum: TrainingDatum, origin: Provenance, sequences: Mapping[str, _Sequence]) -> None:
    tokens_T, inputs = datum.tokens_T, datum.loss_fn_inputs
    if any(name not in inputs or inputs[name].shape != tokens_T.shape for name in _INPUTS):
        return  # which the engine refuses, and says which
    for span in (*origin.input_spans, *origin.target_spans):
        if span.sequence_id not in sequences:
            raise InputError(
                f"{span.sequence_id[:80]!r} is no sequence that this session has recorded; sample with "
                "record_stability_info=True, and train on it in the same session, within a day and before newer ones "
                "take its room"
            )
    for span in origin.input_spans:
        _check_place(span, sequences[span.sequence_id], span.position)
    ends: dict[str, int] = {}  # of the sampled tokens among the targets
    for span in origin.target_spans:
        _check_place(span, sequences[span.sequence_id], span.position + 1)
        if span.is_sampled:
            _check_targets(inputs, span, sequences[span.sequence_id])
            ends[span.sequence_id] = span.offset + span.length
    for name, end in ends.items():  # once for each: it may be in as many spans as it has tokens
        _check_input(tokens_T, name, sequences[name], end)
    is_sampled_T = inputs["is_sampled"] != 0
    if not is_sampled_T.any():
        raise InputError("none of its targets is a sampled token; leave it out")
    stray = np.flatnonzero((inputs["advantages"] != 0) & ~is_sampled_T)
    if stray.size:
        raise InputError(f"the advantage at position {stray[0]} is not 0, and the target there was not sampled")


def _check_input(tokens_T: NDArray[np.int64], name: str, sequence: _Sequence, end: int) -> None:
    """`end`: of the sampled tokens that are targets; those before the last are inputs."""
    start = sequence.num_prompt_tokens
    if _digest(tokens_T[:start]) != sequence.prompt_sha256:
        raise InputError(f"it does not begin with the prompt of {name}; train on the whole prompt")
    if not np.array_equal(tokens_T[start : start + end - 1], sequence.tokens_T[: end - 1]):
        raise InputError(f"its model_input differs from what was sampled in {name}")


def _check_targets(inputs: Mapping[str, NDArray[Any]], span: Span, sequence: _Sequence) -> None:
    here, there = slice(span.position, span.position + span.length), slice(span.offset, span.offset + span.length)
    if not np.array_equal(inputs["target_tokens"][here], sequence.tokens_T[there]):
        raise InputError(f"its target_tokens differ from what was sampled in {span.sequence_id}")
    if not np.array_equal(inputs["logprobs"][here], sequence.logprobs_T[there]):
        raise InputError(f"its logprobs differ from those of the sampler in {span.sequence_id}; send them as they came")


def _check_place(span: Span, sequence: _Sequence, position: int) -> None:
    """`position`: of its first token, in the text that the datum is of."""
    num_prompt = sequence.num_prompt_tokens
    kind, start, size = (
        ("sampled", num_prompt, sequence.tokens_T.size) if span.is_sampled else ("prompt", 0, num_prompt)
    )
    if span.offset + span.length > size or position != start + span.offset:
        raise InputError(
            f"its span of {span.length} {kind} tokens from {span.offset} of {span.sequence_id} is at token {position}; "
            f"there are {size} of them, and the first is token {start}"
        )


def _encode(sequence: SampledSequence) -> bytes:
    return sequence.tokens_T.astype(_TOKEN).tobytes() + sequence.logprobs_T.astype(_LOGPROB).tobytes()


def _decode(row: RecordingRow) -> _Sequence:
    tokens_T, logprobs_T = np.split(np.frombuffer(row.content, _TOKEN), 2)
    return _Sequence(
        num_prompt_tokens=row.num_prompt_tokens,
        prompt_sha256=row.prompt_sha256,
        tokens_T=tokens_T,
        logprobs_T=logprobs_T.view(_LOGPROB),
    )


def _digest(tokens_T: NDArray[np.int64]) -> str:
    return hashlib.sha256(tokens_T.astype(_TOKEN).tobytes()).hexdigest()
