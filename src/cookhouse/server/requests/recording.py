"""What is kept of sampled sequences for training on them by `stable_reinforce`, and the check of data against it.

A datum names the sequence behind each of its positions. All of it is checked: that the sequence is of the same session,
that each of its tokens stands behind what it was sampled behind, and that the log-probabilities are the sampler's. The
ratio of the loss is then one of probabilities of the same token in the same context.
"""

import hashlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cookhouse.engine.contract import ForwardBackward, SampleOutput, SampleRequest, TrainingDatum
from cookhouse.errors import InputError
from cookhouse.server.journal import AddRecording, GroupCommit
from cookhouse.server.store.rows import RecordingRow
from cookhouse.server.store.store import Store
from cookhouse.server.wire import Provenance, Run, TrainingHead, provenance_of

_INPUTS = "target_tokens", "logprobs", "advantages", "is_sampled"
_TOKEN, _LOGPROB = np.dtype("<i4"), np.dtype("<f4")


def sequence_ids(request_id: str, num_samples: int) -> Sequence[str]:
    """The ids of the sequences that a sampling request gives."""
    return [f"{request_id}-{index}" for index in range(num_samples)]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sequence:
    num_prompt_tokens: int
    prompt_sha256: str
    tokens_T: NDArray[np.int32]
    logprobs_T: NDArray[np.float32]


class Recording:
    def __init__(self, store: Store, commit: GroupCommit | None) -> None:
        self._store = store
        self._commit = commit

    async def add(self, session_id: str, owner: str, request: SampleRequest, output: SampleOutput) -> None:
        """Keep what a request has sampled. Returns when it is on the disk, where there is a journal."""
        sizes = [sequence.tokens_T.size for sequence in output.sequences]
        parts = [np.array([len(sizes), *sizes], _TOKEN).tobytes()]
        parts += [sequence.tokens_T.astype(_TOKEN).tobytes() for sequence in output.sequences]
        parts += [sequence.logprobs_T.astype(_LOGPROB).tobytes() for sequence in output.sequences]
        content = b"".join(parts)
        row = RecordingRow(
            request_id=request.request_id,
            session_id=session_id,
            owner=owner,
            created_at=time.time(),
            num_prompt_tokens=len(request.prompt_T),
            prompt_sha256=_digest(request.prompt_T),
            num_bytes=len(content),
            content=content,
        )
        if self._commit is None:
            self._store.add_recording(row)
        else:
            await self._commit.commit(AddRecording(row))

    def check(self, session_id: str, owner: str, head: TrainingHead, request: ForwardBackward) -> None:
        """Check what the datums of a request say of where they come from. Blocking.

        Raises:
            InputError: they were not recorded, or are not what was.
        """
        origins = provenance_of(head, [len(datum.tokens_T) for datum in request.data_D])
        runs = [run for origin in origins for run in (*origin.input_runs, *origin.target_runs)]
        sequences = self._sequences(session_id, owner, {run.sequence_id for run in runs})
        for index, (datum, origin) in enumerate(zip(request.data_D, origins, strict=True)):
            try:
                _check_datum(datum, origin, sequences)
            except InputError as error:
                raise InputError(f"datum {index}: {error}") from None

    def _sequences(self, session_id: str, owner: str, ids: set[str]) -> Mapping[str, _Sequence]:
        rows = self._store.recordings(session_id, owner, {one.rpartition("-")[0] for one in ids})
        found: dict[str, _Sequence] = {}
        for row in rows:
            samples = _decode(row)
            found |= zip(sequence_ids(row.request_id, len(samples)), samples, strict=True)
        return found


def _check_datum(datum: TrainingDatum, origin: Provenance, sequences: Mapping[str, _Sequence]) -> None:
    tokens_T, inputs = datum.tokens_T, datum.loss_fn_inputs
    if any(name not in inputs or inputs[name].shape != tokens_T.shape for name in _INPUTS):
        return  # which the engine refuses, and says which
    for run in (*origin.input_runs, *origin.target_runs):
        if run.sequence_id not in sequences:
            raise InputError(
                f"{run.sequence_id[:80]!r} is no sequence that this session has recorded; sample with "
                "record_stability_info=True, and train on it in the same session within a day"
            )
    for run in origin.input_runs:
        _check_place(run, sequences[run.sequence_id], run.position)
    for run in origin.target_runs:
        _check_place(run, sequences[run.sequence_id], run.position + 1)
        if run.is_sampled:
            _check_sampled(datum, run, sequences[run.sequence_id])
    is_sampled_T = inputs["is_sampled"] != 0
    if not is_sampled_T.any():
        raise InputError("none of its targets is a sampled token; leave it out")
    stray = np.flatnonzero((inputs["advantages"] != 0) & ~is_sampled_T)
    if stray.size:
        raise InputError(f"the advantage at position {stray[0]} is not 0, and the target there was not sampled")


def _check_sampled(datum: TrainingDatum, run: Run, sequence: _Sequence) -> None:
    tokens_T, inputs = datum.tokens_T, datum.loss_fn_inputs
    here, there = slice(run.position, run.position + run.length), slice(run.offset, run.offset + run.length)
    start = sequence.num_prompt_tokens
    if _digest(tokens_T[:start]) != sequence.prompt_sha256:
        raise InputError(f"it does not begin with the prompt of {run.sequence_id}; train on the whole prompt")
    if not np.array_equal(tokens_T[start : start + there.stop - 1], sequence.tokens_T[: there.stop - 1]):
        raise InputError(f"its model_input differs from what was sampled in {run.sequence_id}")
    if not np.array_equal(inputs["target_tokens"][here], sequence.tokens_T[there]):
        raise InputError(f"its target_tokens differ from what was sampled in {run.sequence_id}")
    if not np.array_equal(inputs["logprobs"][here], sequence.logprobs_T[there]):
        raise InputError(f"its logprobs differ from those of the sampler in {run.sequence_id}; send them as they came")


def _check_place(run: Run, sequence: _Sequence, position: int) -> None:
    """`position`: of its first token, in the text that the datum is of."""
    num_prompt = sequence.num_prompt_tokens
    kind, start, size = ("sampled", num_prompt, sequence.tokens_T.size) if run.is_sampled else ("prompt", 0, num_prompt)
    if run.offset + run.length > size or position != start + run.offset:
        raise InputError(
            f"its span of {run.length} {kind} tokens from {run.offset} of {run.sequence_id} is at token {position}; "
            f"there are {size} of them, and the first is token {start}"
        )


def _decode(row: RecordingRow) -> Sequence[_Sequence]:
    count = int(np.frombuffer(row.content, _TOKEN, 1)[0])
    sizes = np.frombuffer(row.content, _TOKEN, count, _TOKEN.itemsize)
    ends = np.cumsum(sizes)[:-1]
    first = (1 + count) * _TOKEN.itemsize
    total = int(sizes.sum())
    tokens = np.split(np.frombuffer(row.content, _TOKEN, total, first), ends)
    logprobs = np.split(np.frombuffer(row.content, _LOGPROB, total, first + total * _TOKEN.itemsize), ends)
    return [
        _Sequence(
            num_prompt_tokens=row.num_prompt_tokens,
            prompt_sha256=row.prompt_sha256,
            tokens_T=tokens_T,
            logprobs_T=logprobs_T,
        )
        for tokens_T, logprobs_T in zip(tokens, logprobs, strict=True)
    ]


def _digest(tokens_T: NDArray[np.int64]) -> str:
    return hashlib.sha256(tokens_T.astype(_TOKEN).tobytes()).hexdigest()
