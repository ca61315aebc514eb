"""When something that happens every so many steps is due."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Cadence:
    """Steps after which to save, and before which to evaluate. 0 means never but at the ends of a run."""

    save_every: int = 0
    eval_every: int = 0

    def is_save_due(self, step: int, total_steps: int) -> bool:
        """Whether to save once `step` steps are taken; not after the last, which has a save of its own."""
        return self.save_every > 0 and step % self.save_every == 0 and step < total_steps

    def is_eval_due(self, step: int) -> bool:
        """Whether to evaluate the weights after `step` steps and before the next; the first weights always."""
        return step == 0 or (self.eval_every > 0 and step % self.eval_every == 0)
