"""Successive halving of a sweep: what was measured of each run at its rungs, and which runs were promoted.

A rung is a number of steps: the fewest, and then `reduction_factor` times as many each, up to those of a whole run. At
each a run is paused and measured, and the best `1 / reduction_factor` of those measured there are promoted (ASHA: Li et
al., "A System for Massively Parallel Hyperparameter Tuning", 2020, https://arxiv.org/abs/1810.05934).
"""

import math
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, ValidationError

from cookhouse.errors import InputError
from cookhouse.files import write_whole
from cookhouse.telemetry import find_metric

HALVING_FILE = "halving.json"
"""What was measured of the runs, and which were promoted."""
DIVERGED = "diverged (not finite)"


class RungResult(BaseModel):
    """Measurement of a run at a rung."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    run: str
    rung: int
    """From 0."""
    step: int
    """Steps that it had taken: those of the rung, unless it stopped early."""
    value: float | None
    """Of the metric; None: it diverged (not finite)."""
    stderr: float | None
    is_finished: bool
    """Whether it had taken its last step."""


class Promotion(BaseModel):
    """Promotion of a run to a rung."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    run: str
    rung: int
    """To which."""
    rank: int
    """Its own among the runs measured at the rung before, from 1."""
    num_measured: int
    """How many these were."""


class Job(NamedTuple):
    """A run, and the rung to train it to."""

    run: str
    rung: int
    promotion: Promotion | None = None
    """The decision behind it, where that is a new one."""


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
    """Whether no further run is promoted."""
    outcomes: dict[str, str] = {}
    """How far each run was trained, and why no further, once it is over."""

    @property
    def last(self) -> dict[str, RungResult]:
        """Last measurement of each run, by name."""
        return {each.run: each for each in self.measured}

    @property
    def paused_runs(self) -> dict[str, RungResult]:
        """Of the runs that have reached the rung they were promoted to, what was measured there, by name."""
        rungs = self._rungs()
        return {each.run: each for each in self.measured if each.rung == rungs.get(each.run, 0)}

    def _rungs(self) -> dict[str, int]:
        """Of the promoted runs, the rung that they have reached or are trained to."""
        return {each.run: each.rung for each in self.promotions}

    def ranked(self, rung: int) -> list[RungResult]:
        """Runs measured at a rung, the best first; of equals the first that was measured."""
        sign = 1 if self.direction == "less" else -1
        found = [each for each in self.measured if each.rung == rung]
        return sorted(found, key=lambda each: math.inf if each.value is None else sign * each.value)

    def next_job(self, runs: Sequence[str], running: Collection[str], *, completes_rungs: bool) -> Job | None:
        """The run to train next; None: nothing before one of the `running` is measured. `runs` are all but those that
        failed. Changes nothing: `note` does.

        Promoted runs that were interrupted come first. `completes_rungs`: every run reaches a rung before one is
        promoted from it. Else it is get_job of ASHA (Algorithm 2): the promotion of the highest rung that has one, or
        a new run.
        """
        rungs, measured = self._rungs(), {(each.run, each.rung) for each in self.measured}
        free = [run for run in runs if run not in running and (run, rungs.get(run, 0)) not in measured]
        new = [Job(run, 0) for run in free if run not in rungs]
        interrupted = sorted((Job(run, rungs[run]) for run in free if run in rungs), key=lambda job: job.rung)
        found = [self._promotable(rung, runs, running) for rung in range(len(self.rungs) - 1)]
        promotions = [job for job in found if job is not None]
        jobs = [*interrupted[::-1], *promotions[::-1], *new]
        if completes_rungs:
            jobs = [*new, *interrupted, *promotions]
        if jobs:
            return jobs[0]
        return None if running else self._last_job(runs)

    def note(self, job: Job) -> None:
        """Keep the decision behind a job that is begun."""
        if job.promotion is not None:
            self.promotions.append(job.promotion)

    def _promotable(self, rung: int, runs: Collection[str], running: Collection[str]) -> Job | None:
        ranked = self._ranked_of(rung, runs)
        return self._promotion(ranked[: len(ranked) // self.reduction_factor], ranked, running)

    def _ranked_of(self, rung: int, runs: Collection[str]) -> list[RungResult]:
        return [each for each in self.ranked(rung) if each.run in runs]

    def _last_job(self, runs: Collection[str]) -> Job | None:
        """The promotion of the best of the highest rung that has one, where too few are left for a share of them to be
        promoted, and none has finished: those above may have failed, or diverged.
        """
        if any(each.is_finished and each.value is not None and each.run in runs for each in self.measured):
            return None
        for rung in reversed(range(len(self.rungs) - 1)):
            ranked = self._ranked_of(rung, runs)
            if (job := self._promotion(ranked, ranked, ())) is not None:
                return job
        return None

    def _promotion(
        self, best: Sequence[RungResult], ranked: Sequence[RungResult], running: Collection[str]
    ) -> Job | None:
        """Promotion of the first of the best of a rung that was not promoted yet.

        One that is `running` has been measured, and its launch is about to end: it is promoted after that.
        """
        rungs = self._rungs()
        for rank, each in enumerate(best, 1):
            if each.run in running or each.value is None or each.is_finished or rungs.get(each.run, 0) > each.rung:
                continue
            rung = each.rung + 1
            return Job(each.run, rung, Promotion(run=each.run, rung=rung, rank=rank, num_measured=len(ranked)))
        return None

    def reopen(self) -> None:
        """Note that runs may be promoted again."""
        self.is_over, self.outcomes = False, {}

    def end(self, errors: Mapping[str, str]) -> None:
        """Note that no further run is promoted, and why not; `errors` are what ended the runs that failed, by name."""
        self.is_over = True
        self.outcomes = {run: self._outcome(last) for run, last in self.last.items()}
        self.outcomes |= {run: self._failure(run, error) for run, error in errors.items()}

    def _outcome(self, last: RungResult) -> str:
        if last.is_finished:
            return f"finished after step {last.step:,}"
        ranked = self.ranked(last.rung)
        num_promoted = sum(each.rung == last.rung + 1 for each in self.promotions)
        assert self.metric is not None
        value = DIVERGED if last.value is None else find_metric(self.metric).text(last.value)
        rank = f"rank {ranked.index(last) + 1} of {len(ranked)}"
        return f"{self.metric} {value} after step {last.step:,}: {rank}; {num_promoted} promoted"

    def _failure(self, run: str, error: str) -> str:
        last = self.last.get(run)
        when = f"before step {self.rungs[0]:,}" if last is None else f"after step {last.step:,}"
        return f"failed {when}: {error}"

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
