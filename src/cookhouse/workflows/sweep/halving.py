"""The runs of a sweep by successive halving: each is paused at its rung, and the best of a rung are promoted."""

import asyncio
from dataclasses import dataclass

from cookhouse.errors import InputError
from cookhouse.report import RunRecord
from cookhouse.runs import RunSummary, read_record, read_result
from cookhouse.runs.halving import DIVERGED, Halving, Job, read_halving, rungs_of, write_halving
from cookhouse.settings import SweepSettings
from cookhouse.telemetry import find_metric
from cookhouse.workflows.sweep.measuring import check_data, check_steps, choose_metric, rung_result
from cookhouse.workflows.sweep.runs import Runs, report
from cookhouse.workflows.sweep.state import SweepState


@dataclass(frozen=True, kw_only=True)
class HalvedRuns(Runs):
    """The runs of a sweep, of which only the best are promoted. One that fails leaves the others alone.

    Raises:
        InputError: the runs do not measure the metric, or it has no direction; they were measured on different data, or
            the data of one end before its last step; or the decisions of an earlier launch cannot be read.
    """

    reads: tuple[str, ...] = (*Runs.reads, "writing")
    writes: tuple[str, ...] = (*Runs.writes, "halving")

    async def run_all(self, state: SweepState) -> None:
        halving = await asyncio.to_thread(read_halving, state.path) or _start(state.config)
        halving.reopen()
        state.halving = halving
        num_jobs = min(state.config.jobs, len(self.runs))
        running: set[str] = set()
        refused: list[InputError] = []
        is_measured = asyncio.Condition()

        def next_job() -> Job | None:
            left = [name for name in self.runs if name not in state.errors]
            return halving.next_job(left, running, completes_rungs=num_jobs == 1)

        async def work() -> None:
            while not (refused or state.interrupt.is_requested):
                if (job := next_job()) is None:
                    if not running:
                        return
                    async with is_measured:
                        await is_measured.wait()
                    continue
                halving.note(job)
                running.add(job.run)
                try:
                    await self._run_to_rung(state, halving, job)
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
        if state.interrupt.is_requested and next_job() is not None:
            return
        state.is_whole = True
        halving.end(state.errors)
        await _keep(state, halving)
        self._load_results(state, halving)

    async def _run_to_rung(self, state: SweepState, halving: Halving, job: Job) -> None:
        """Train a run to its rung, and note what is measured of it there."""
        await _keep(state, halving)
        name, step = job.run, halving.rungs[job.rung]
        is_last = job.rung + 1 == len(halving.rungs)
        report(state, name, f"training to step {step:,}")
        paused = {"pause_at_step": None if is_last else step, "pause_metric": None if is_last else halving.metric}
        record = await self.run_child_of(state, name, {"eval_at_start": False, **self.runs[name], **paused})
        if record is None:
            return
        summary = state.results[name].summary
        if summary.is_interrupted and not summary.is_paused:
            report(state, name, "interrupted and saved")
            return
        await self._measure(state, halving, job, record, summary)

    async def _measure(
        self, state: SweepState, halving: Halving, job: Job, record: RunRecord, summary: RunSummary
    ) -> None:
        check_steps(job.run, summary, halving.rungs[-1])
        if not halving.measured:
            choose_metric(halving, record, summary)
        elif job.rung == 0:
            first = halving.measured[0].run
            check_data(
                _metric(halving), {first: await asyncio.to_thread(read_record, state.path / first), job.run: record}
            )
        metric = find_metric(_metric(halving), record.declared)
        result = rung_result(halving, job.run, job.rung, record, summary)
        if result is None:
            self.fail(state, job.run, f"it did not measure {metric.name} after step {summary.num_steps:,}")
            return
        halving.measured.append(result)
        await _keep(state, halving)
        found = DIVERGED if result.value is None else metric.text(result.value)
        how = "paused" if summary.is_paused else "finished"
        report(state, job.run, f"{how} after step {result.step:,}, {metric.label} {found}")

    def _load_results(self, state: SweepState, halving: Halving) -> None:
        """Read the results of runs that had finished before this launch."""
        for each in halving.measured:
            if each.is_finished and each.run not in state.results:
                result = read_result(state.path / each.run)
                if result is not None:
                    state.results[each.run] = result


def _metric(halving: Halving) -> str:
    assert halving.metric is not None
    return halving.metric


async def _keep(state: SweepState, halving: Halving) -> None:
    async with state.writing:
        await asyncio.to_thread(write_halving, state.path, halving)


def _start(config: SweepSettings) -> Halving:
    assert config.min_steps is not None
    assert config.max_steps is not None
    return Halving(
        rungs=rungs_of(config.min_steps, config.reduction_factor, config.max_steps),
        reduction_factor=config.reduction_factor,
        metric=config.metric,
        direction=config.direction,
    )
