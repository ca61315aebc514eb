"""Adam's settings for each step: the only thing about the optimizer that the client decides."""

from dataclasses import dataclass

import tinker

from cookhouse.settings import OptimizerSettings
from cookhouse.settings.schedules import default_warmup, multiplier


@dataclass(frozen=True, kw_only=True)
class AdamSchedule:
    """Adam with the learning rate of a schedule, a function of the step alone, so that a resume continues it."""

    settings: OptimizerSettings
    total_steps: int

    @property
    def warmup_steps(self) -> int:
        """Steps over which the rate rises from 0."""
        settings = self.settings
        if settings.warmup_steps is None:
            return default_warmup(settings.lr_schedule, self.total_steps)
        return settings.warmup_steps

    @property
    def notes(self) -> list[str]:
        """Notes for a person on values that nobody set."""
        if self.settings.warmup_steps is not None or not self.warmup_steps:
            return []
        return [
            f"warmup_steps is not set: the learning rate rises over the first {self.warmup_steps:,} of "
            f"{self.total_steps:,} steps, a tenth of them"
        ]

    def params(self, step: int) -> tinker.AdamParams:
        """Settings of the step after `step` others; the service's own defaults, which differ in ε, are never used."""
        settings = self.settings
        scale = multiplier(settings.lr_schedule, step, self.total_steps, self.warmup_steps)
        return tinker.AdamParams(
            learning_rate=settings.learning_rate * scale,
            beta1=0.9,
            beta2=0.95,
            eps=1e-8,
            weight_decay=settings.weight_decay,
            grad_clip_norm=settings.grad_clip_norm,
        )
