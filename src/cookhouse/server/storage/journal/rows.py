"""Rows of the journal, and changes of them. A change that has been applied already does nothing more."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cookhouse.server.storage.store.rows import FINISHED, RecordingRow, RunRow, SamplerRow, SessionRow


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """An accepted request, without its body."""

    request_id: str
    model_id: str
    session_id: str
    owner: str
    seq_id: int | None = None
    """As the client gave it."""
    kind: str
    """The name of its route, as in `forward_backward`; `FINISHED` once its answer is kept in its place."""
    position: int
    """In order of acceptance, over all models."""
    run_index: int | None = None
    """Its place among the requests of its model that have run, where that is not the order of `seq_id`."""
    drawn: Mapping[str, Any] = field(default_factory=dict)
    """What the server drew for it: seeds, ids, times. JSON."""
    num_bytes: int
    """Decoded: what it counts as held."""
    encoding: str = ""
    """Of the body: "" or `zstd`."""
    accepted_at: float
    """Seconds since the epoch."""

    @property
    def is_finished(self) -> bool:
        """True if its answer is kept in its place."""
        return self.kind == FINISHED


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The result of a request, as its client gets it."""

    request_id: str
    session_id: str
    owner: str
    media_type: str
    status: int
    is_failure: bool
    kind: str
    body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """The newest file from which a model can be brought back."""

    model_id: str
    session_id: str
    state_id: str
    num_bytes: int
    seen: Mapping[str, Any] = field(default_factory=dict)
    """Which `seq_id`s have come. JSON."""
    last_checkpoint: str | None = None
    created_at: float
    """Seconds since the epoch."""
    sha256: Mapping[str, str] | None = None
    """Of each file, by name; None for one written before they were kept."""


@dataclass(frozen=True, slots=True)
class AddEntry:
    """Keep a request with its body; one whose `request_id` is kept already is left as it is."""

    entry: Entry
    body: bytes


@dataclass(frozen=True, slots=True)
class DropEntry:
    """Forget a request, if it is the one of that position."""

    request_id: str
    position: int


@dataclass(frozen=True, slots=True)
class AddSession:
    row: SessionRow


@dataclass(frozen=True, slots=True)
class AddRun:
    row: RunRow


@dataclass(frozen=True, slots=True)
class AddSampler:
    row: SamplerRow


@dataclass(frozen=True, slots=True)
class AddRecording:
    """Keep a sampled sequence, for training on it."""

    row: RecordingRow


@dataclass(frozen=True, slots=True)
class EndSession:
    """Note its end, and forget its entries, answers and states, and that its samplers have files."""

    session_id: str
    finished_at: float
    reason: str | None = None
    detail: str | None = None


@dataclass(frozen=True, slots=True)
class SetRunOrder:
    """Give requests ascending `run_index`es."""

    request_ids: Sequence[str]
    first_index: int


@dataclass(frozen=True, slots=True)
class PutState:
    """Keep a state in place of the model's last one; forget the entries it covers, and keep answers of these."""

    state: State
    covered: Sequence[str] = ()
    """Request ids."""
    answers: Sequence[Answer] = ()


@dataclass(frozen=True, slots=True)
class FinishEntry:
    """Keep the answer of a request that changed no state in place of its body. The entry stays until a state covers it:
    it says that the request has come.
    """

    answer: Answer


@dataclass(frozen=True, slots=True)
class AddAnswer:
    """Keep an answer; the first one of a request counts."""

    answer: Answer


@dataclass(frozen=True, slots=True)
class DropAnswers:
    request_ids: Sequence[str]


@dataclass(frozen=True, slots=True)
class SetSamplerFile:
    """Note whether the published weights of a sampler lie in files, and the digests of these, by name."""

    sampler_id: str
    has_file: bool
    sha256: Mapping[str, str] | None = None


Change = (
    AddEntry
    | DropEntry
    | AddSession
    | AddRun
    | AddSampler
    | AddRecording
    | EndSession
    | SetRunOrder
    | PutState
    | FinishEntry
    | AddAnswer
    | DropAnswers
    | SetSamplerFile
)
