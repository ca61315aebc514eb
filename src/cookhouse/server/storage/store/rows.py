"""Rows of the store, as plain data. Every row has its owner. Times are seconds since the epoch."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from cookhouse.engine.contract import LoraSpec

FINISHED = "finished"
"""The kind of a request whose answer is kept in its place."""
CheckpointKind = Literal["weights", "sampler_weights", "external_weights"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRow:
    session_id: str
    owner: str
    created_at: float
    finished_at: float | None = None
    display_name: str | None = None
    user_metadata: Mapping[str, Any] = field(default_factory=dict)
    project_id: str | None = None
    """A label: every tenant has its own sessions and no others, whatever it calls their projects."""
    finish_reason: str | None = None
    """What its client said; None if it did not say anything."""
    finish_detail: str | None = None
    idempotency_key: str | None = None
    """What its client calls the request that began it."""
    server_id: str | None = None
    """Who holds it, where several servers share the database."""
    sdk_version: str | None = None
    """As its client gives it; None for one begun before it was kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRow:
    model_id: str
    session_id: str
    owner: str
    base_model: str
    lora: Mapping[str, Any]
    created_at: float
    last_request_at: float
    user_metadata: Mapping[str, Any] = field(default_factory=dict)
    model_seq_id: int | None = None
    """Its client's number of it, within the session."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplerRow:
    sampler_id: str
    session_id: str
    owner: str
    base_model: str
    model_path: str | None
    created_at: float
    seq_id: int | None = None
    """Its client's number of it, within the session."""
    snapshot_id: str | None = None
    """Published weights that it reads; None where it has no weights of its own, or those of a checkpoint."""
    lora: Mapping[str, Any] | None = None
    """Of these."""
    has_file: bool = False
    """Whether these lie in `samplers/<snapshot_id>` of the state folder."""
    sha256: Mapping[str, str] | None = None
    """Of each file there, by name; None for those written before they were kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordingRow:
    """A sampled sequence, kept for training on it."""

    sequence_id: str
    session_id: str
    owner: str
    created_at: float
    num_prompt_tokens: int
    prompt_sha256: str
    """Of its tokens as int32."""
    num_bytes: int
    """What it takes on the disk, about."""
    content: bytes
    """Its tokens, as int32, then their logprobs, as float32."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointRow:
    checkpoint_id: str
    """Name of its folder; made by the server."""
    model_id: str
    kind: CheckpointKind
    name: str
    owner: str
    base_model: str
    lora: Mapping[str, Any]
    has_optimizer: bool
    size_bytes: int
    created_at: float
    expires_at: float | None
    user_metadata: Mapping[str, Any] = field(default_factory=dict)
    sha256: Mapping[str, str] | None = None
    """Of each file, by name; None for one saved before they were kept."""
    is_public: bool = False
    """Whether every tenant may read it."""

    @property
    def path(self) -> str:
        return f"tinker://{self.model_id}/{self.kind}/{self.name}"

    @property
    def lora_spec(self) -> LoraSpec:
        return LoraSpec(**self.lora)
