"""The body of a sweep: its runs, each to its end, one after another or several at a time; or by successive halving,
where each is paused and measured at its rung, and the best are promoted.
"""

import asyncio
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cookhouse.errors import CookhouseError, InputError
from cookhouse.report import RunRecord, other_data
from cookhouse.runs import RunSummary, read_record, read_result
from cookhouse.sweeps.halving import DIVERGED, Halving, Job, RungResult, read_halving, rungs_of, write_halving
from cookhouse.sweeps.record import by_error, write_page, write_sweep
from cookhouse.sweeps.settings import SweepSettings
from cookhouse.sweeps.state import SweepState
from cookhouse.sweeps.table import measured_value, paused_value
from cookhouse.telemetry import events, find_metric, keys, ranked
from cookhouse.workflows.pipeline import RunChild


@dataclass(frozen=True, kw_only=True)
class SweepRuns:
    """The runs of a sweep. One that fails leaves the others alone; so each is prepared when its turn comes."""

    state: SweepState
    run_child: RunChild

    @property
    def path(self) -> Path:
        return self.state.folder.path

    async def run(self) -> bool:
        """Run them, and write what came of them; the result is False if the sweep was interrupted.

        Raises:
            InputError: every run failed, and there is an earlier sweep to put back.
        """
        state, context = self.state, self.state.context
        try:
            with context.interrupt.deferred():
                await self.run_all()
        finally:
            state.record = await asyncio.to_thread(write_sweep, self.path, state.errors)
            await asyncio.to_thread(write_page, self.path)
        if state.folder.replaces and state.has_failed:
            failed = "; ".join(f"run {', '.join(names)}: {error}" for error, names in by_error(state.errors).items())
            raise InputError(f"every run of the sweep failed: {failed}")
        if state.errors and not context.interrupt.is_requested:
            failed = f"{len(state.errors)} of {len(state.runs)} runs failed: {', '.join(state.errors)}"
            context.status, context.error = "errored", InputError(failed)
        return state.is_whole

    async def run_all(self) -> None:
        """Run what there is to run, as many at a time as the settings say."""
        state, waiting = self.state, iter(self.state.runs.items())

        async def work() -> None:
            for name, settings in waiting:
                if state.context.interrupt.is_requested:
                    return
                await self._run_one(name, settings)

        async with asyncio.TaskGroup() as group:
            for _ in range(min(state.config.jobs, len(state.runs))):
                group.create_task(work())
        is_over = len(state.results) + len(state.errors) == len(state.runs)
        state.is_whole = is_over and not any(result.summary.is_interrupted for result in state.results.values())

    async def _run_one(self, name: str, settings: Mapping[str, Any]) -> None:
        self.report(name, "begins")
        record = await self.run_child_of(name, settings)
        if record is None:
            return
        how = "interrupted and saved" if self.state.results[name].summary.is_interrupted else "finished"
        self.report(name, how if record.headline is None else f"{how}, {record.headline.text}")

    async def run_child_of(self, name: str, settings: Mapping[str, Any]) -> RunRecord | None:
        """Run one, and read what it has left so far; None: it failed."""
        state = self.state
        try:
            result = await self.run_child(state.context, state.config.recipe, self.path / name, settings)
        except Exception as error:
            self.fail(name, str(error) if isinstance(error, CookhouseError) else f"{type(error).__name__}: {error}")
            return None
        state.results[name] = result
        await asyncio.to_thread(state.folder.begin)
        return await asyncio.to_thread(read_record, self.path / name)

    def fail(self, name: str, error: str) -> None:
        """Note that a run failed, and why."""
        same = next((other for other, text in self.state.errors.items() if text == error), None)
        self.state.errors[name] = error
        self.report(name, f"failed: {error}" if same is None else f"failed with the error of run {same}")

    def report(self, name: str, what: str) -> None:
        """Say how a run stands."""
        self.state.context.telemetry.event(events.RUN_PART, text=f"run {name}: {what}")


@dataclass(frozen=True, kw_only=True)
class HalvedRuns(SweepRuns):
    """The runs of a sweep, of which only the best are promoted. One that fails leaves the others alone.

    Raises:
        InputError: the runs do not measure the metric, or it has no direction; they were measured on different data, or
            the data of one end before its last step; or the decisions of an earlier launch cannot be read.
    """

    writing: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while decisions are written."""

    @property
    def halving(self) -> Halving:
        assert self.state.halving is not None
        return self.state.halving

    async def run_all(self) -> None:
        state = self.state
        state.halving = halving = await asyncio.to_thread(read_halving, self.path) or _start(state.config)
        halving.reopen()
        num_jobs = min(state.config.jobs, len(state.runs))
        running: set[str] = set()
        refused: list[InputError] = []
        is_measured = asyncio.Condition()

        def next_job() -> Job | None:
            left = [name for name in state.runs if name not in state.errors]
            return halving.next_job(left, running, completes_rungs=num_jobs == 1)

        async def work() -> None:
            while not (refused or state.context.interrupt.is_requested):
                if (job := next_job()) is None:
                    if not running:
                        return
                    async with is_measured:
                        await is_measured.wait()
                    continue
                halving.note(job)
                running.add(job.run)
                try:
                    await self._run_to_rung(job)
                except InputError as error:
                    refused.append(error)
                finally:
                    running.discard(job.run)
                async with is_measured:
                    is_measured.notify_all()

        async with asyncio.TaskGroup() as group:
            for _ in range(num_jobs):
                group.create_task(work())
        if refused:
            raise refused[0]
        if state.context.interrupt.is_requested and next_job() is not None:
            return
        state.is_whole = True
        halving.end(state.errors)
        await self._keep()
        self._load_results()

    async def _run_to_rung(self, job: Job) -> None:
        """Train a run to its rung, and note what is measured of it there."""
        await self._keep()
        halving, name = self.halving, job.run
        step, is_last = halving.rungs[job.rung], job.rung + 1 == len(halving.rungs)
        self.report(name, f"training to step {step:,}")
        paused = {"pause_at_step": None if is_last else step, "pause_metric": None if is_last else halving.metric}
        record = await self.run_child_of(name, {"eval_at_start": False, **self.state.runs[name], **paused})
        if record is None:
            return
        summary = self.state.results[name].summary
        if summary.is_interrupted and not summary.is_paused:
            self.report(name, "interrupted and saved")
            return
        await self._measure(job, record, summary)

    async def _measure(self, job: Job, record: RunRecord, summary: RunSummary) -> None:
        halving = self.halving
        _check_steps(job.run, summary, halving.rungs[-1])
        if not halving.measured:
            _choose_metric(halving, record, summary)
        elif job.rung == 0:
            first = halving.measured[0].run
            other = await asyncio.to_thread(read_record, self.path / first)
            _check_data(_metric(halving), {first: other, job.run: record})
        metric = find_metric(_metric(halving), record.declared)
        result = _rung_result(metric.name, job, record, summary)
        if result is None:
            self.fail(job.run, f"it did not measure {metric.name} after step {summary.num_steps:,}")
            return
        halving.measured.append(result)
        await self._keep()
        found = DIVERGED if result.value is None else metric.text(result.value)
        how = "paused" if summary.is_paused else "finished"
        self.report(job.run, f"{how} after step {result.step:,}, {metric.label} {found}")

    async def _keep(self) -> None:
        async with self.writing:
            await asyncio.to_thread(write_halving, self.path, self.halving)

    def _load_results(self) -> None:
        """Read the results of runs that had finished before this launch."""
        for each in self.halving.measured:
            if each.is_finished and each.run not in self.state.results:
                result = read_result(self.path / each.run)
                if result is not None:
                    self.state.results[each.run] = result


def _metric(halving: Halving) -> str:
    assert halving.metric is not None
    return halving.metric


def _start(config: SweepSettings) -> Halving:
    assert config.min_steps is not None
    assert config.max_steps is not None
    return Halving(
        rungs=rungs_of(config.min_steps, config.reduction_factor, config.max_steps),
        reduction_factor=config.reduction_factor,
        metric=config.metric,
        direction=config.direction,
    )


def _rung_result(metric: str, job: Job, record: RunRecord, summary: RunSummary) -> RungResult | None:
    """Measurement of a run that is paused at a rung, or has finished; None: the metric was not."""
    value, stderr = _value(record, metric, summary)
    if value is None:
        return None
    is_finite = math.isfinite(value)
    return RungResult(
        run=job.run,
        rung=job.rung,
        step=summary.num_steps,
        value=value if is_finite else None,
        stderr=stderr if is_finite else None,
        is_finished=not summary.is_paused,
    )


def _value(record: RunRecord, metric: str, summary: RunSummary) -> tuple[float | None, float | None]:
    # The best weights of a run that keeps them may be those of an earlier step, at which no other run is compared.
    return paused_value(record, metric, summary.num_steps) if summary.is_paused else measured_value(record, metric)


def _choose_metric(halving: Halving, record: RunRecord, summary: RunSummary) -> None:
    """Note by which metric, and in which direction, the runs are compared, from the first that is measured.

    Raises:
        InputError: it did not measure the metric, or that has no direction.
    """
    names: Mapping[str, Any] = {name: value for row in record.metrics for name, value in row.items()}
    numbers = [name for name in names if name != "step" and _value(record, name, summary)[0] is not None]
    own = record.declared
    directed = [name for name in ranked(numbers, own) if find_metric(name, own).direction is not None]
    if halving.metric is None and directed:  # the loss moves from the first step on, where scores may all be 0
        halving.metric = keys.TEST_NLL if keys.TEST_NLL in directed else directed[0]
    if halving.metric is None:
        raise InputError("the runs measure nothing that has a direction; set metric and direction")
    if halving.metric not in numbers:
        others = [name for name in numbers if name not in directed]
        raise InputError(f"the runs do not measure {halving.metric}; they measure {', '.join([*directed, *others])}")
    halving.direction = halving.direction or find_metric(halving.metric, own).direction
    if halving.direction is None:
        raise InputError(
            f"{halving.metric} has no direction; set direction=less or direction=more, or compare by one of "
            f"{', '.join(directed)}"
        )


def _check_steps(run: str, summary: RunSummary, max_steps: int) -> None:
    """Raise `InputError` where the data of a run end before `max_steps`: its rungs would be others.

    A run that stops early by its own settings is compared as it is.
    """
    steps = summary.num_steps if summary.stopped is None else summary.total_steps
    if steps < max_steps:
        raise InputError(
            f"{run} has data for {steps:,} of the {max_steps:,} steps, and runs are compared at equal steps; raise "
            "num_epochs or lower max_steps"
        )


def _check_data(metric: str, records: Mapping[str, RunRecord]) -> None:
    """Raise `InputError` where runs were measured on different data."""
    if apart := other_data(metric, records):
        raise InputError(f"{apart}: {' and '.join(records)}; give them the same data, or leave min_steps out")
