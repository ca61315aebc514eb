"""Successive halving of a sweep: what was measured of each setting at its rungs, and which settings go on.

A rung is a number of steps: the fewest, and then `reduction_factor` times as many each, up to those of a whole run. At
each a run is paused and measured, and the best `1 / reduction_factor` of those measured there go on (ASHA, Li et al.
2020, https://arxiv.org/abs/1810.05934).
"""

import math
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from cookhouse.errors import InputError
from cookhouse.files import write_whole
from cookhouse.runs.names import HALVING_FILE
from cookhouse.telemetry import find_metric


class RungResult(BaseModel):
    """What was measured of a run at a rung."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    run: str
    rung: int
    """From 0."""
    step: int
    """Steps that it had taken: those of the rung, unless its data gave no more."""
    value: float | None
    """Of the metric; None: it was not measured, or is not finite."""
    stderr: float | None
    is_finished: bool
    """Whether it had taken its last step."""


class Promotion(BaseModel):
    """That a run went on to a rung."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    run: str
    rung: int
    """That it went to."""
    rank: int
    """Which of those it was that had been measured at the rung before, from 1."""
    num_measured: int
    """How many these were."""


class Halving(BaseModel):
    """The decisions of a sweep, in their order."""

    model_config = ConfigDict(extra="forbid")

    rungs: list[int]
    """Steps of each."""
    reduction_factor: int
    metric: str | None
    """None: not known before the first run is measured."""
    direction: Literal["less", "more"] | None
    measured: list[RungResult] = []
    promotions: list[Promotion] = []
    is_over: bool = False
    """Whether no further run goes on."""
    outcomes: dict[str, str] = {}
    """How far each run went, and why no further, once it is over."""

    @property
    def last(self) -> dict[str, RungResult]:
        """What was measured last of each run, by name."""
        return {each.run: each for each in self.measured}

    @property
    def paused_runs(self) -> dict[str, RungResult]:
        """Of the runs that have reached the rung that they were to go to, what was measured there, by name."""
        rungs = self._rungs()
        return {each.run: each for each in self.measured if each.rung == rungs.get(each.run, 0)}

    def _rungs(self) -> dict[str, int]:
        """Of the runs that went on, the rung that they have reached or are on their way to."""
        return {each.run: each.rung for each in self.promotions}

    def ranked(self, rung: int) -> list[RungResult]:
        """Those measured at a rung, the best first; of equals the first that was measured."""
        sign = 1 if self.direction == "less" else -1
        found = [each for each in self.measured if each.rung == rung]
        return sorted(found, key=lambda each: math.inf if each.value is None else sign * each.value)

    def next_run(self, runs: Sequence[str], running: Collection[str]) -> tuple[str, int] | None:
        """A run and the rung that it is to go to, noted as promoted if it is; None: there is none as long as the
        `running` ones are not measured. `runs` are all but those that failed.

        The lowest rung comes first: a run goes on when as many as can be are there to be compared with it.
        """
        rungs, measured = self._rungs(), {(each.run, each.rung) for each in self.measured}
        waiting = [(rungs.get(run, 0), run) for run in runs if run not in running]
        waiting = [(rung, run) for rung, run in waiting if (run, rung) not in measured]
        if waiting:
            rung, run = min(waiting, key=lambda each: each[0])
            return run, rung
        for rung in range(len(self.rungs) - 1):
            ranked = self._ranked_of(rung, runs)
            best = ranked[: len(ranked) // self.reduction_factor]
            if (promoted := self._promoted(best, ranked, running)) is not None:
                return promoted
        return None if running else self._last_run(runs)

    def _ranked_of(self, rung: int, runs: Collection[str]) -> list[RungResult]:
        return [each for each in self.ranked(rung) if each.run in runs]

    def _last_run(self, runs: Collection[str]) -> tuple[str, int] | None:
        """The best of the highest rung that has one to go on, where too few are left to be parted, and none has
        finished: those that went higher may have failed, or diverged.
        """
        if any(each.is_finished and each.value is not None and each.run in runs for each in self.measured):
            return None
        for rung in reversed(range(len(self.rungs) - 1)):
            ranked = self._ranked_of(rung, runs)
            if (promoted := self._promoted(ranked, ranked, ())) is not None:
                return promoted
        return None

    def _promoted(
        self, best: Sequence[RungResult], ranked: Sequence[RungResult], running: Collection[str]
    ) -> tuple[str, int] | None:
        """The first of the best of a rung that has not gone on yet, and where it goes to; noted.

        One that is `running` has been measured, and its launch is about to end: it goes on after that.
        """
        rungs = self._rungs()
        for rank, each in enumerate(best, 1):
            if each.run in running or each.value is None or each.is_finished or rungs.get(each.run, 0) > each.rung:
                continue
            self.promotions.append(Promotion(run=each.run, rung=each.rung + 1, rank=rank, num_measured=len(ranked)))
            return each.run, each.rung + 1
        return None

    def end(self) -> None:
        """Note that no further run goes on, and why not."""
        self.is_over = True
        self.outcomes = {run: self._outcome(last) for run, last in self.last.items()}

    def _outcome(self, last: RungResult) -> str:
        if last.is_finished:
            return f"finished after step {last.step:,}"
        ranked = self.ranked(last.rung)
        num_promoted = sum(each.rung == last.rung + 1 for each in self.promotions)
        assert self.metric is not None
        value = "diverged (not finite)" if last.value is None else find_metric(self.metric).text(last.value)
        rank = f"rank {ranked.index(last) + 1} of {len(ranked)}"
        return f"{self.metric} {value} after step {last.step:,}: {rank}; {num_promoted} promoted"

    @property
    def num_steps(self) -> int:
        """Taken by all runs together, as far as they were measured."""
        return sum(each.step for each in self.last.values())


def rungs_of(min_steps: int, reduction_factor: int, max_steps: int) -> list[int]:
    """The steps of each rung: `min_steps`, so many times more each, and at last `max_steps`."""
    rungs = [min_steps]
    while rungs[-1] * reduction_factor < max_steps:
        rungs.append(rungs[-1] * reduction_factor)
    return [*rungs, max_steps]


def read_halving(folder: Path) -> Halving | None:
    """The decisions of the sweep in a folder; None: there are none.

    Raises:
        InputError: the file holds something else.
    """
    path = folder / HALVING_FILE
    try:
        return Halving.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValidationError) as error:
        raise InputError(f"{path} does not hold the decisions of a sweep ({error}); choose another log_path") from error


def write_halving(folder: Path, halving: Halving) -> None:
    """Keep the decisions so far. Raises `InputError` where it cannot be written."""
    write_whole(folder / HALVING_FILE, halving.model_dump_json(indent=1) + "\n")
