"""The time that a run has left, from its last steps and its evaluations, and the causes of a correction."""

import statistics
from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from cookhouse.telemetry import is_held_out, keys
from cookhouse.training import Cadence, FinishedStep

TIMED_STEPS: Final = 10
"""From so many timed steps on the time left is one figure, and a range before that."""
CHANGE: Final = 1.5
"""A factor by which a figure has changed much."""
_RECENT_STEPS = 20
_FEWEST_STEPS = 2
"""Fewer have no spread. So many are the pace where every step follows a checkpoint."""
_OVERLAPPED_STEPS = 2
"""Steps that an evaluation may hold up: the one that it comes before, and the next, which is in flight with it."""


class Schedule:
    """Steps, evaluations and checkpoints of a run, by the number of steps before them."""

    def __init__(self, total_steps: int, evaluations: Sequence[Cadence] = (), saves: Cadence | None = None) -> None:
        """Each of the evaluations measures the trained weights as well, which are always saved."""
        self.total_steps = total_steps
        at_end = [total_steps] if evaluations else []
        self._evaluated = sorted({*at_end, *(step for each in evaluations for step in _due(each, total_steps))})
        self.overlapped_steps = min([_OVERLAPPED_STEPS, *(each.every - 1 for each in evaluations if each.every > 0)])
        """Steps at each evaluation that are counted to it, and not to the pace of the others."""
        self._saved = sorted({total_steps, *([] if saves is None else _due(saves, total_steps))})

    def is_saved(self, step: int) -> bool:
        """True if a checkpoint is due after `step` steps."""
        place = bisect_left(self._saved, step)
        return place < len(self._saved) and self._saved[place] == step

    def evaluations_from(self, step: int) -> int:
        """Times at which something is measured after `step` steps or more."""
        return len(self._evaluated) - bisect_left(self._evaluated, step)

    def saves_from(self, step: int) -> int:
        """Checkpoints after `step` steps or more."""
        return len(self._saved) - bisect_left(self._saved, step)


def _due(cadence: Cadence, total_steps: int) -> Iterable[int]:
    """The steps after which it is due while the run trains, its start left out."""
    return range(cadence.every, total_steps, cadence.every) if cadence.every > 0 else ()


@dataclass(frozen=True, kw_only=True)
class Pace:
    """Seconds of a step, an evaluation and a checkpoint, as they were measured."""

    step: float
    step_low: float
    step_high: float
    """Both are `step` once ten steps are timed."""
    evaluation: float | None
    """None: no evaluation is timed yet."""
    checkpoint: float
    """On top of a step; 0 where that is not to be seen."""
    tokens: float
    """Input tokens of a step."""


@dataclass(frozen=True, kw_only=True)
class TimeLeft:
    """Seconds that a run has left."""

    seconds: float
    low: float
    high: float
    num_untimed: int
    """Evaluations to come that are not in these, since none is timed yet."""


@dataclass
class _Evaluation:
    """The step before which one was due, and what it took."""

    step: int
    is_first: bool
    """True if it overlapped with the first step of the launch, which is not timed."""
    held_seconds: float = 0.0
    """For which nothing but it held steps up."""
    overlapped: list[float] = field(default_factory=list)
    """Seconds of the steps that overlapped with it."""

    def cost(self, step_seconds: float) -> float:
        """Seconds by which it makes a run longer, whose other steps take so long."""
        return self.held_seconds + max(0.0, sum(self.overlapped) - step_seconds * len(self.overlapped))


class StepTimes:
    """Times of the steps of one launch. Its first step is left out: it holds what is done once, such as compiling."""

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        self._num_steps = 0
        self._last = 0
        self._timed = 0
        self._steps: deque[tuple[float, float]] = deque(maxlen=_RECENT_STEPS)
        """Seconds and tokens of steps with neither an evaluation nor a checkpoint."""
        self._saved: deque[float] = deque(maxlen=_RECENT_STEPS)
        """Seconds of steps that follow one."""
        self._evaluations: list[_Evaluation] = []

    def add(self, finished: FinishedStep) -> None:
        step = finished.cursor.step
        self._num_steps += 1
        self._last = step
        if any(map(is_held_out, finished.metrics)):
            self._evaluations.append(_Evaluation(step, is_first=self._num_steps == 1))
        last = self._evaluations[-1] if self._evaluations else None
        if last is not None:
            last.held_seconds += finished.held_seconds
        if self._num_steps == 1:
            return
        self._timed += 1
        if last is not None and step - last.step < self.schedule.overlapped_steps:
            last.overlapped.append(finished.seconds)
        elif self.schedule.is_saved(step) and len(self._steps) >= _FEWEST_STEPS:
            self._saved.append(finished.seconds)
        else:
            self._steps.append((finished.seconds, float(finished.metrics.get(keys.TRAIN_TOKENS, 0.0))))

    @property
    def is_settled(self) -> bool:
        """True once ten steps of the pace are timed."""
        return self._timed >= TIMED_STEPS

    def forget_steps(self) -> None:
        """Time steps anew: those so far are of two paces."""
        self._steps.clear()
        self._timed = 0

    def pace(self) -> Pace | None:
        """None before two steps are timed."""
        if len(self._steps) < _FEWEST_STEPS:
            return None
        seconds = [each for each, _ in self._steps]
        mean = statistics.fmean(seconds)
        error = 0.0 if self.is_settled else 2 * statistics.stdev(seconds) / len(seconds) ** 0.5
        over = [each for each in self._evaluations if self._last - each.step >= _OVERLAPPED_STEPS]
        timed = [each.cost(mean) for each in over if each.held_seconds or not each.is_first]
        return Pace(
            step=mean,
            step_low=max(mean - error, min(mean, *seconds)),
            step_high=min(mean + error, max(mean, *seconds)),
            evaluation=statistics.fmean(timed) if timed else None,
            checkpoint=max(0.0, statistics.fmean(self._saved) - mean) if self._saved else 0.0,
            tokens=statistics.fmean(tokens for _, tokens in self._steps),
        )

    def left(self, pace: Pace, step: int) -> TimeLeft:
        """Of a run that has taken `step` steps, at a pace."""
        num_steps, num_evaluations = self.schedule.total_steps - step, self.schedule.evaluations_from(step)
        rest = (pace.evaluation or 0.0) * num_evaluations + pace.checkpoint * self.schedule.saves_from(step)
        return TimeLeft(
            seconds=pace.step * num_steps + rest,
            low=pace.step_low * num_steps + rest,
            high=pace.step_high * num_steps + rest,
            num_untimed=num_evaluations if pace.evaluation is None else 0,
        )


def causes(said: Pace, now: Pace) -> list[str]:
    """Figures that changed much between two paces, in words."""
    found = []
    if _is_much(said.step, now.step):
        steps = f"a step takes {now.step:.2f} s and took {said.step:.2f} s"
        if (
            said.tokens
            and now.tokens
            and _is_much(said.tokens, now.tokens)
            and (now.step > said.step) == (now.tokens > said.tokens)
        ):
            steps += f", with {now.tokens:,.0f} tokens in place of {said.tokens:,.0f}"
        found.append(steps)
    if now.evaluation is not None and said.evaluation is None:
        found.append(f"an evaluation takes {now.evaluation:.1f} s, which was not timed")
    elif now.evaluation is not None and said.evaluation is not None and _is_much(said.evaluation, now.evaluation):
        found.append(f"an evaluation takes {now.evaluation:.1f} s and took {said.evaluation:.1f} s")
    if _is_much(said.checkpoint + now.step, now.checkpoint + now.step):
        found.append(f"a checkpoint takes {now.checkpoint:.1f} s")
    return found


def _is_much(before: float, after: float) -> bool:
    return not before / CHANGE < after < before * CHANGE
