"""The runs of a sweep by successive halving: each is paused at its rung, and the best of a rung go on from there."""

import asyncio
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cookhouse.errors import InputError
from cookhouse.report import RunRecord, measured_value
from cookhouse.runs import read_result
from cookhouse.runs.halving import Halving, RungResult, read_halving, rungs_of, write_halving
from cookhouse.settings import SweepSettings
from cookhouse.telemetry import find_metric, keys, ranked
from cookhouse.workflows.sweep.runs import Runs, report
from cookhouse.workflows.sweep.state import SweepState


@dataclass(frozen=True, kw_only=True)
class HalvedRuns(Runs):
    """The runs of a sweep, of which only the best go on. One that fails leaves the others alone.

    Raises:
        InputError: the metric is not one that the runs measure, or it has no direction; or the
            decisions of an earlier launch cannot be read.
    """

    reads: tuple[str, ...] = (*Runs.reads, "writing")
    writes: tuple[str, ...] = (*Runs.writes, "halving")

    async def run_all(self, state: SweepState) -> None:
        halving = await asyncio.to_thread(read_halving, state.path) or _start(state.config)
        state.halving, halving.is_over = halving, False
        running: set[str] = set()
        refused: list[InputError] = []
        is_measured = asyncio.Condition()

        def next_run() -> tuple[str, int] | None:
            return halving.next_run([name for name in self.runs if name not in state.errors], running)

        async def work() -> None:
            while not (refused or state.interrupt.is_requested):
                if (chosen := next_run()) is None:
                    if not running:
                        return
                    async with is_measured:
                        await is_measured.wait()
                    continue
                running.add(chosen[0])
                try:
                    await self._run_to_rung(state, halving, *chosen)
                except InputError as error:
                    refused.append(error)
                finally:
                    running.discard(chosen[0])
                async with is_measured:
                    is_measured.notify_all()

        async with asyncio.TaskGroup() as group:
            for _ in range(min(state.config.jobs, len(self.runs))):
                group.create_task(work())
        if refused:
            raise refused[0]
        if state.interrupt.is_requested and next_run() is not None:
            return
        state.is_whole = True
        halving.end()
        await _keep(state, halving)
        self._load_results(state, halving)

    async def _run_to_rung(self, state: SweepState, halving: Halving, name: str, rung: int) -> None:
        """Take a run to a rung, and note what is measured of it there."""
        await _keep(state, halving)
        step = halving.rungs[rung]
        is_last = rung + 1 == len(halving.rungs)
        report(state, name, f"training to step {step:,}")
        paused = {"pause_at_step": None if is_last else step}
        record = await self.run_child_of(state, name, {"eval_at_start": False, **self.runs[name], **paused})
        if record is None:
            return
        summary = state.results[name].summary
        if summary.is_interrupted and not summary.is_paused:
            report(state, name, "interrupted and saved")
            return
        _choose_metric(halving, record)
        assert halving.metric is not None
        value, stderr = measured_value(record, halving.metric)
        is_finite = value is not None and math.isfinite(value)
        measured = RungResult(
            run=name,
            rung=rung,
            step=summary.num_steps,
            value=value if is_finite else None,
            stderr=stderr if is_finite else None,
            is_finished=not summary.is_paused,
        )
        halving.measured.append(measured)
        await _keep(state, halving)
        metric = find_metric(halving.metric, record.declared)
        found = "diverged (not finite)" if measured.value is None else metric.text(measured.value)
        how = "paused" if summary.is_paused else "finished"
        report(state, name, f"{how} after step {measured.step:,}, {metric.label} {found}")

    def _load_results(self, state: SweepState, halving: Halving) -> None:
        """Read the results of runs that had finished before this launch."""
        for each in halving.measured:
            if each.is_finished and each.run not in state.results:
                result = read_result(state.path / each.run)
                if result is not None:
                    state.results[each.run] = result


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


def _choose_metric(halving: Halving, record: RunRecord) -> None:
    """See, when the first run is measured, by what and which way the runs are compared.

    Raises:
        InputError: the metric is none that it measured, or it has no direction.
    """
    if halving.measured:
        return
    names: Mapping[str, Any] = {name: value for row in record.metrics for name, value in row.items()}
    told = [name for name in ranked(names, record.declared) if find_metric(name, record.declared).direction is not None]
    if halving.metric is None and told:  # the loss moves from the first step on, where scores may all be 0
        halving.metric = keys.TEST_NLL if keys.TEST_NLL in told else told[0]
    if halving.metric is None:
        raise InputError("the runs measure nothing that has a direction; set metric and direction")
    if measured_value(record, halving.metric)[0] is None:
        numbers = [name for name, value in names.items() if isinstance(value, int | float) and name != "step"]
        others = [name for name in numbers if name not in told]
        raise InputError(f"the runs do not measure {halving.metric}; they measure {', '.join([*told, *others])}")
    halving.direction = halving.direction or find_metric(halving.metric, record.declared).direction
    if halving.direction is None:
        raise InputError(
            f"{halving.metric} has no direction; set direction=less or direction=more, or compare by one of "
            f"{', '.join(told)}"
        )
