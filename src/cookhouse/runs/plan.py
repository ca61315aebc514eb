"""The plan of a run, as a dry run makes it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

Preview: TypeAlias = Sequence[tuple[str, bool]]
"""An example as pieces of text, each with whether it is trained on."""


@dataclass(frozen=True, kw_only=True)
class RunPlan:
    """Results of a dry run, which makes no training request."""

    recipe: str
    config: Mapping[str, Any]
    """Every field, resolved."""
    folder: Path
    facts: Mapping[str, str]
    """What was found, in words and with units, by name: tokenizer, steps, adapter and so on."""
    changed: Mapping[str, Any] = field(default_factory=dict)
    """Those that are not the defaults, but for the run directory."""
    notes: Sequence[str] = ()
    """What a person should know about the data, a sentence each."""
    previews: Sequence[Preview] = ()
    """First examples."""
