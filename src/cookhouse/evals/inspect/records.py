"""Records of tasks of Inspect AI. They can be imported without it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cookhouse.evals.benchmarks.attempts import Attempt
from cookhouse.evals.benchmarks.benchmark import ItemText
from cookhouse.evals.benchmarks.figures import Estimate


@dataclass(frozen=True, kw_only=True)
class InspectTask:
    """A task, and those of its samples that are asked."""

    name: str
    """Its figures stand under it."""
    spec: str
    """As `inspect eval` names it."""
    all_ids: Sequence[int | str]
    asked_ids: Sequence[int | str]
    epochs: int
    """How often each is asked."""


@dataclass(frozen=True, kw_only=True)
class InspectResult:
    """A task that has been run."""

    name: str
    """Figures stand under it: `inspect/TASK`."""
    log: Path
    """Inspect AI's own."""
    figures: Mapping[str, Estimate]
    """By `SCORER/METRIC`."""
    items: Mapping[int, ItemText]
    attempts: Sequence[Attempt]
    """An answer for each epoch. `correct` is the value of the first scorer, and of that the first if it gives several;
    right is 1 and wrong 0 where these are letters or words.
    """
