"""A run as plain data: what its page is made from."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from cookhouse.diagnosis import Finding
from cookhouse.telemetry import Headline, Metric, after_step, find_metric
from cookhouse.weights.checkpoints import Checkpoint

Question: TypeAlias = tuple[tuple[tuple[str, str], ...], str, str]
"""Earlier messages, the last one, and what was expected: what distinguishes questions."""


def checkpoint_text(checkpoint: Checkpoint, own: Mapping[str, Metric] | None = None) -> str:
    """By what a checkpoint is the best of its run: `held-out loss 1.25 after step 40`. `own` as in `find_metric`."""
    [(name, value)] = checkpoint.best.items()
    metric = find_metric(name, own)
    return f"{metric.label} {metric.text(value)} {after_step(checkpoint.step)}"


@dataclass(frozen=True, kw_only=True)
class RecordedAnswer:
    """A held-out conversation that a model answered."""

    prompt: str
    """The message before the answer."""
    earlier: tuple[tuple[str, str], ...] = ()
    """Role and text of the messages before that one, the system message among them."""
    expected: str
    answer: str
    is_correct: bool
    group: str | None = None
    """What kind of problem it is, if that is known."""
    verdict: str | None = None
    """`wins`, `draws` or `loses` against what was expected, where a preference model compares them; None: they are
    compared as texts.
    """

    @property
    def question(self) -> Question:
        return self.earlier, self.prompt, self.expected


@dataclass(frozen=True, kw_only=True)
class RunPart:
    """A run that another one consists of."""

    name: str
    """Of its folder, below that of the whole."""
    recipe: str
    state: str
    headline: Headline | None
    page: str | None
    """Path of its own page from the folder of the whole, if it has one."""


@dataclass(frozen=True, kw_only=True)
class RunRecord:
    """Record that a run has left so far."""

    folder: Path
    """Where it lies."""
    config: Mapping[str, Any]
    """`recipe`, `config` (its settings), `seed`, `version`, `revision` and `synthetic` (ports that were filled by
    no-ops); empty if nobody knows.
    """
    metrics: Sequence[Mapping[str, Any]]
    """Rows, each with its `step`."""
    checkpoints: Sequence[Checkpoint]
    answers: Mapping[int, Sequence[RecordedAnswer]]
    """Of evaluations, in their order, by the steps that the weights had taken."""
    rollouts: Sequence[str]
    """Names of the pages of rollouts, in the order of their steps."""
    data: Mapping[str, Any] = field(default_factory=dict)
    """Fingerprints of the data that it read, by what for: `train`, `test`, and the further ones with a number."""
    facts: Mapping[str, str] = field(default_factory=dict)
    """When it ran, where, and how it stands, in words."""
    evaluations: Sequence[str] = ()
    """Names of the pages of what evaluators noted, in the same order."""
    declared: Mapping[str, Metric] = field(default_factory=dict)
    """What it said of metrics that are not cookhouse's, by name."""
    headline: Headline | None = None
    """The most telling metric of it."""
    place: str = ""
    """How long it took, and on what, as the end of a sentence."""
    resume: str | None = None
    """The command that goes on with it, of a run that came to no end."""
    parts: Sequence[RunPart] = ()
    """Of a run that consists of others, in their order."""
    teacher: Sequence[RecordedAnswer] = ()
    """What the run's teacher itself answered."""
    warnings: Sequence[str] = ()
    """What it warned of."""
    findings: Sequence[Finding] = ()
    """Findings in its metrics, the gravest first."""
    notes: Sequence[str] = ()
    """What it said of its data and settings before it trained."""
    gaps: Sequence[str] = ()
    """What is missing, or cannot be read and why."""

    @property
    def best(self) -> Checkpoint | None:
        """The checkpoint with its best weights, where it keeps that."""
        return next((point for point in reversed(self.checkpoints) if point.best), None)
