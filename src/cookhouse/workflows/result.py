"""What a run hands back."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeAlias, TypeVar

S = TypeVar("S")


@dataclass(frozen=True, kw_only=True)
class AnswerSample:
    """One held-out conversation and what the model answered before and after training."""

    prompt: str
    expected: str
    before: str | None
    after: str | None


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A metric before and after training. What was not measured is None, never 0."""

    name: str
    """Key of the metric."""
    label: str
    """For a person, with its unit."""
    before: float | None
    after: float | None
    is_share: bool = False
    """Whether it lies in [0, 1] and is shown in percent."""


@dataclass(frozen=True, kw_only=True)
class RunSummary:
    """What is worth telling a person at the end of a run."""

    recipe: str
    model_name: str
    folder: Path
    is_interrupted: bool
    num_steps: int
    """Optimizer steps taken so far, those before a resume included."""
    total_steps: int
    seconds: float
    """Wall-clock time of this call."""
    figures: Sequence[Figure]
    samples: Sequence[AnswerSample]
    report: Path | None
    """The page with curves and answers, if it could be written."""
    state_path: str | None
    sampler_path: str | None
    """tinker:// paths of the last checkpoint that has one."""
    next_command: str
    """The resume command after an interrupt, else the command that samples from the trained model."""

    def before(self, name: str) -> float | None:
        """A metric before training, if it was measured."""
        return next((figure.before for figure in self.figures if figure.name == name), None)

    def after(self, name: str) -> float | None:
        """A metric after training, if it was measured."""
        return next((figure.after for figure in self.figures if figure.name == name), None)


@dataclass(frozen=True, kw_only=True)
class RunResult(Generic[S]):
    """The outcome of a recipe: its final state, the last value of every metric, and files and paths by name."""

    state: S
    metrics: Mapping[str, float]
    artifacts: Mapping[str, str]
    summary: RunSummary


Preview: TypeAlias = Sequence[tuple[str, bool]]
"""An example as pieces of text, each with whether it is trained on."""


@dataclass(frozen=True, kw_only=True)
class DryRunReport:
    """What a run would do, found without a training request."""

    recipe: str
    config: Mapping[str, Any]
    """Every field, resolved."""
    folder: Path
    facts: Mapping[str, str]
    """What was found, in words and with units, by name: tokenizer, steps, adapter and so on."""
    notes: Sequence[str] = ()
    """What a person should know about the data, a sentence each."""
    previews: Sequence[Preview] = field(default_factory=tuple)
    """First examples."""
