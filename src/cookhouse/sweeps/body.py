"""The body of a sweep: its runs, each to its end, one after another or several at a time."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cookhouse.errors import InputError
from cookhouse.report import RunRecord
from cookhouse.runs import RunFolder, RunResult, read_record
from cookhouse.sweeps.halving import Halving
from cookhouse.sweeps.record import SweepRecord, write_page, write_sweep
from cookhouse.sweeps.settings import SweepSettings
from cookhouse.telemetry import events
from cookhouse.workflows.pipeline import RunChild
from cookhouse.workflows.stages.stage import SlotStage, Stage
from cookhouse.workflows.stages.state import RunState


@dataclass(kw_only=True)
class SweepState(RunState):
    """State that the stages of a sweep share."""

    config: SweepSettings
    document: str
    folder: RunFolder = field(init=False)
    path: Path = field(init=False)
    results: dict[str, RunResult[Any]] = field(default_factory=dict)
    """Of the runs that came to an end or were interrupted, by name."""
    errors: dict[str, str] = field(default_factory=dict)
    """What ended the others that have begun, by name."""
    record: SweepRecord = field(init=False)
    halving: Halving | None = None
    """Its decisions, of a sweep by successive halving."""
    writing: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while these are written."""
    is_whole: bool = False
    """Whether every run came to its end, or was stopped by a decision."""
    registered_model: str | None = None
    """What the best run was registered as."""


@dataclass(frozen=True, kw_only=True)
class SweepRuns:
    """The runs of a sweep. One that fails leaves the others alone."""

    runs: Mapping[str, Mapping[str, Any]]
    run_child: RunChild
    title: str = "runs"
    reads: tuple[str, ...] = ("config", "folder", "path", "results", "errors")
    writes: tuple[str, ...] = ("record", "results", "errors", "is_whole")
    parts: tuple[Stage[SweepState], ...] = ()

    @property
    def children(self) -> Sequence[str]:
        return tuple(self.runs)

    def with_parts(self, name: str, instead: Sequence[Stage[Any] | SlotStage[Any]]) -> "SweepRuns":
        del instead
        raise InputError(f"{name} is no stage of this workflow, which consists of other runs")

    async def prepare(self, state: SweepState) -> None:
        """Each run is prepared when its turn comes: one that cannot work leaves the others alone."""

    async def run(self, state: SweepState) -> bool:
        try:
            with state.interrupt.deferred():
                await self.run_all(state)
        finally:
            state.record = await asyncio.to_thread(write_sweep, state.path, state.errors)
            await asyncio.to_thread(write_page, state.path)
        if state.folder.replaces and state.errors and not state.results:
            failed = "; ".join(f"run {name}: {error}" for name, error in state.errors.items())
            raise InputError(f"every run of the sweep failed: {failed}")
        if state.errors and not state.interrupt.is_requested:
            state.status = "errored"
            state.error = InputError(f"{len(state.errors)} of {len(self.runs)} runs failed: {', '.join(state.errors)}")
        return state.is_whole

    async def run_all(self, state: SweepState) -> None:
        """Run what there is to run, as many at a time as the settings say."""
        waiting = iter(self.runs.items())

        async def work() -> None:
            for name, settings in waiting:
                if state.interrupt.is_requested:
                    return
                await self._run_one(state, name, settings)

        async with asyncio.TaskGroup() as group:
            for _ in range(min(state.config.jobs, len(self.runs))):
                group.create_task(work())
        is_over = len(state.results) + len(state.errors) == len(self.runs)
        state.is_whole = is_over and not any(result.summary.is_interrupted for result in state.results.values())

    async def _run_one(self, state: SweepState, name: str, settings: Mapping[str, Any]) -> None:
        report(state, name, "begins")
        record = await self.run_child_of(state, name, settings)
        if record is None:
            return
        how = "interrupted and saved" if state.results[name].summary.is_interrupted else "finished"
        report(state, name, how if record.headline is None else f"{how}, {record.headline.text}")

    async def run_child_of(self, state: SweepState, name: str, settings: Mapping[str, Any]) -> RunRecord | None:
        """Run one, and read what it has left so far; None: it failed."""
        try:
            result = await self.run_child(state.context, state.config.recipe, state.path / name, settings)
        except Exception as error:
            self.fail(state, name, f"{type(error).__name__}: {error}")
            return None
        state.results[name] = result
        await asyncio.to_thread(state.folder.begin)
        return await asyncio.to_thread(read_record, state.path / name)

    def fail(self, state: SweepState, name: str, error: str) -> None:
        """Note that a run failed, and why."""
        state.errors[name] = error
        report(state, name, f"failed, and the others go on: {error}")


def report(state: SweepState, name: str, what: str) -> None:
    """Say how a run stands."""
    state.telemetry.event(events.RUN_PART, text=f"run {name}: {what}")
