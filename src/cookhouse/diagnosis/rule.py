"""A rule, and the facts of a run that it may read besides its metrics."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from cookhouse.diagnosis.finding import Finding, Severity
from cookhouse.diagnosis.history import MetricHistory
from cookhouse.telemetry import Metric
from cookhouse.weights.checkpoints import Checkpoint


@dataclass(frozen=True, kw_only=True)
class RunFacts:
    """Facts of a run besides its metrics. What is not known of it is empty."""

    settings: Mapping[str, Any] = field(default_factory=dict)
    """As config.json has them."""
    total_steps: int | None = None
    checkpoints: Callable[[], Sequence[Checkpoint]] = tuple
    """Reads what the run has saved."""
    declared: Mapping[str, Metric] | None = None
    """Metrics that the run declared, by name; None: those of this process."""

    @property
    def learns_by_reward(self) -> bool:
        """True if rewards become advantages."""
        return bool(self.settings.get("advantage", "none") != "none")

    def now(self, name: str) -> str:
        """A setting's value, in brackets; empty if it is not known."""
        value = self.settings.get(name)
        return "" if value is None else f" (now {value})"


Found: TypeAlias = tuple[str, Mapping[str, float], str]
"""Title, evidence and advice of a finding."""


@dataclass(frozen=True, kw_only=True)
class Rule:
    """A function of metrics to a finding, with the numbers that it decides by."""

    name: str
    severity: Severity
    when: str
    """When it finds something, for a reader of the docs; {threshold} and {steps} stand for its numbers."""
    reads: tuple[str, ...]
    """Metrics; one that ends in a slash stands for all that begin so."""
    threshold: float
    steps: int
    """Steps that it looks at, and the fewest that it judges by."""
    judges_short_runs: bool = False
    """Whether a run of fewer steps in all is judged by these."""
    find: Callable[["Rule", MetricHistory, RunFacts], Found | None]

    def finding(self, history: MetricHistory, facts: RunFacts) -> Finding | None:
        """Finding in the metrics so far."""
        is_whole = self.judges_short_runs and facts.total_steps is not None and history.num_steps >= facts.total_steps
        if history.num_steps < self.steps and not (is_whole and history.num_steps):
            return None
        found = self.find(self, history, facts)
        if found is None:
            return None
        title, evidence, advice = found
        return Finding(
            name=self.name,
            severity=self.severity,
            step=history.num_steps,
            title=title,
            evidence=evidence,
            advice=advice,
        )


def mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def in_steps(count: int) -> str:
    """The end of a sentence: `in the last 4 steps`."""
    return "in the last step" if count == 1 else f"in the last {count:,} steps"
