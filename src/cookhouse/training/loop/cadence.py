"""Cadence: the steps at which something that happens every so many of them is due."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Cadence:
    """Every so many steps; 0 is never, but for a start that is asked for."""

    every: int
    at_start: bool = False
    """Whether it is also due before the first step."""

    def is_due(self, step: int) -> bool:
        """True if it is due after `step` steps and before the next."""
        if step == 0:
            return self.at_start
        return self.every > 0 and step % self.every == 0
