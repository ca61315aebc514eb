"""Adam's settings for each step: the only thing about the optimizer that the client decides."""

from dataclasses import dataclass

import tinker

from cookhouse.schedules import multiplier


@dataclass(frozen=True, kw_only=True)
class AdamSchedule:
    """Adam with the learning rate of a schedule, a function of the step alone, so that a resume continues it."""

    learning_rate: float
    """Peak."""
    schedule: str
    total_steps: int
    warmup_steps: int = 0
    weight_decay: float = 0.0
    """Decoupled: each step takes learning rate · this of every weight."""
    grad_clip_norm: float = 0.0
    """Norm that a larger gradient is scaled down to; 0: none is."""

    def params(self, step: int) -> tinker.AdamParams:
        """Settings of the step after `step` others; the service's own defaults, which differ in ε, are never used."""
        scale = multiplier(self.schedule, step, self.total_steps, self.warmup_steps)
        return tinker.AdamParams(
            learning_rate=self.learning_rate * scale,
            beta1=0.9,
            beta2=0.95,
            eps=1e-8,
            weight_decay=self.weight_decay,
            grad_clip_norm=self.grad_clip_norm,
        )
