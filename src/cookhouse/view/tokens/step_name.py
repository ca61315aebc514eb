"""A step as addresses name it: 12 is the twelfth step, test-12 what was held out from the weights after twelve."""

import re
from dataclasses import dataclass
from pathlib import Path

from cookhouse.errors import InputError
from cookhouse.runs.reading.rollouts import rollout_steps, rollouts_file
from cookhouse.telemetry import after_step, step_number

_NAME = re.compile(r"(?P<test>test-)?(?P<step>[0-9]{1,9})", re.ASCII)


@dataclass(frozen=True)
class StepName:
    """A step of training, or an evaluation of held-out problems."""

    step: int
    """As files count: steps taken before."""
    is_test: bool

    def __str__(self) -> str:
        return f"test-{self.step}" if self.is_test else str(step_number(self.step))

    @property
    def title(self) -> str:
        return f"Held-out rollouts {after_step(self.step)}" if self.is_test else f"Rollouts of step {self}"

    def file(self, folder: Path) -> Path:
        """Its rollouts in the folder of a run."""
        return rollouts_file(folder, self.step, is_test=self.is_test)

    def neighbors(self, folder: Path) -> tuple[str | None, str | None]:
        """Names of the ones before and after it that have rollouts."""
        steps = rollout_steps(folder, is_test=self.is_test)
        earlier = [step for step in steps if step < self.step]
        later = [step for step in steps if step > self.step]
        return (
            str(StepName(earlier[-1], self.is_test)) if earlier else None,
            str(StepName(later[0], self.is_test)) if later else None,
        )


def parse_step(text: str) -> StepName:
    """The step that an address names.

    Raises:
        InputError: it names none.
    """
    found = _NAME.fullmatch(text)
    if found is None or (not found["test"] and int(found["step"]) == 0):
        raise InputError(
            f"{text[:80]!r} is no step; 12 is the twelfth step of training, test-12 what was held out after it"
        )
    return (
        StepName(int(found["step"]), is_test=True) if found["test"] else StepName(int(found["step"]) - 1, is_test=False)
    )
