"""What a run hands back."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True, kw_only=True)
class AnswerSample:
    """One held-out conversation and what the model answered before and after training."""

    prompt: str
    expected: str
    before: str | None
    after: str | None


@dataclass(frozen=True, kw_only=True)
class RunSummary:
    """What is worth telling a person at the end of a run. A figure that was not measured is None, never 0."""

    recipe: str
    model_name: str
    folder: Path
    is_interrupted: bool
    num_steps: int
    """Optimizer steps taken so far, those before a resume included."""
    total_steps: int
    seconds: float
    """Wall-clock time of this call."""
    train_loss: float | None
    """Mean negative log-likelihood per trained token (nats) of the last step."""
    loss_before: float | None
    loss_after: float | None
    """Mean negative log-likelihood per trained token (nats) of the held-out conversations."""
    exact_match_before: float | None
    exact_match_after: float | None
    """Share of held-out conversations answered exactly, greedily, in [0, 1]."""
    samples: Sequence[AnswerSample]
    state_path: str | None
    sampler_path: str | None
    """tinker:// paths of the last checkpoint that has one."""
    next_command: str
    """The resume command after an interrupt, else the command that samples from the trained model."""


@dataclass(frozen=True, kw_only=True)
class RunResult:
    """The outcome of a recipe: its final state, the last value of every metric, and files and paths by name."""

    state: Any
    metrics: Mapping[str, float]
    artifacts: Mapping[str, str]
    summary: RunSummary


@dataclass(frozen=True, kw_only=True)
class DryRunReport:
    """What a run would do, found without a training request."""

    recipe: str
    config: Mapping[str, Any]
    """Every field, resolved."""
    folder: Path
    renderer_name: str
    tokenizer_name: str
    num_conversations: int
    num_examples: int
    num_tokens: int
    num_trained_tokens: int
    num_truncated: int
    """Examples cut to `max_length`."""
    longest_tokens: int
    num_test_conversations: int
    steps_per_epoch: int
    total_steps: int
    adapter_parameters: int | None
    """None when the model's config cannot be read here."""
    adapter_bytes: int | None
    """Weights, gradient and both Adam moments of the adapter in fp32, at the service."""
    previews: Sequence[Sequence[tuple[str, bool]]] = field(default_factory=tuple)
    """First examples as (text, whether it is trained on) pieces."""
