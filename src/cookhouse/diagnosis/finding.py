"""A finding: something that the metrics of a run show, in words and as data."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeAlias

Severity: TypeAlias = Literal["critical", "warning", "note"]
"""critical: nothing useful is learned; warning: the result gets worse than it could be; note: worth knowing."""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """Something that a rule found in the metrics of a run."""

    name: str
    """Of its rule."""
    severity: Severity
    step: int
    """Steps taken when it was found."""
    title: str
    """A sentence with the figures."""
    evidence: Mapping[str, float]
    """Values by the names of their metrics."""
    advice: str
    """The next thing to try."""

    @property
    def text(self) -> str:
        """In one line: the title, then the advice."""
        return f"{self.title}. Try: {self.advice}"

    def as_json(self) -> dict[str, Any]:
        """Plain values by name."""
        return {**asdict(self), "evidence": dict(self.evidence)}
