"""Usage of a server by a tenant or a session."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Tokens of requests that were answered, and seconds of the engine, also for those that failed. What ran more than
    once, since its worker or the server ended, counts once.
    """

    trained_tokens: int = 0
    """Positions of `forward_backward`, each as often as it was sent."""
    scored_tokens: int = 0
    """Those of `forward`, which leaves no gradient."""
    prompt_tokens: int = 0
    """Of sampling requests, once however many samples were asked for, and whether or not they had to be computed."""
    sampled_tokens: int = 0
    engine_seconds: float = 0.0
    """A turn that served several sessions is parted among them. Saves count as often as they are made."""

    @classmethod
    def of(cls, amounts: Mapping[str, Any]) -> "Usage":
        """Amounts by name, of a server that may be of another version."""
        return cls(**{field.name: amounts[field.name] for field in fields(cls) if field.name in amounts})

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(**{field.name: getattr(self, field.name) + getattr(other, field.name) for field in fields(Usage)})
