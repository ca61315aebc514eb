"""State of a sweep, and the result that is read from it."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cookhouse.algorithms import RunState
from cookhouse.runs import RunFolder, RunResult, RunSummary
from cookhouse.runs.names import REPORT_FILE
from cookhouse.sweeps.halving import Halving
from cookhouse.sweeps.record import SweepRecord
from cookhouse.sweeps.settings import SweepSettings
from cookhouse.workflows.pipeline import by_run


@dataclass(kw_only=True)
class SweepState(RunState):
    """State that the stages of a sweep share."""

    config: SweepSettings
    document: str
    """What `cookhouse sweep` would make the same runs of; it is kept next to them."""
    runs: Mapping[str, Mapping[str, Any]]
    """Settings of each run, by its name."""
    folder: RunFolder = field(init=False)
    results: dict[str, RunResult[Any]] = field(default_factory=dict)
    """Of the runs that came to an end or were interrupted, by name."""
    errors: dict[str, str] = field(default_factory=dict)
    """What ended the others that have begun, by name."""
    record: SweepRecord = field(init=False)
    halving: Halving | None = None
    """Its decisions, of a sweep by successive halving."""
    is_whole: bool = False
    """True if every run came to its end, or was stopped by a decision."""
    registered_model: str | None = None
    """What the best run was registered as."""

    @property
    def has_failed(self) -> bool:
        """True if every run failed."""
        return bool(self.errors) and not self.results

    def facts(self) -> Mapping[str, str]:
        return {
            run: " ".join(f"{name}={value}" for name, value in settings.items() if name != "model_name")
            for run, settings in self.runs.items()
        }

    def result(self, seconds: float) -> RunResult[Any]:
        """The figures of the best run, or of none where no run is the best, and the metrics of each under its name."""
        results, best, halving = self.results, self.record.table.best, self.halving
        top = None if best is None or best.name not in results else results[best.name].summary
        path, is_interrupted = self.folder.path, not self.is_whole
        resume = f"cookhouse runs resume {shlex.quote(str(path))}"
        is_left = is_interrupted or bool(self.errors) or top is None
        is_kept = path.is_dir()  # not where no run has left anything
        summary = RunSummary(
            recipe=f"sweep of {self.config.recipe}",
            model_name=self.config.model_name,
            folder=path,
            is_interrupted=is_interrupted,
            num_steps=halving.num_steps if halving else sum(result.summary.num_steps for result in results.values()),
            total_steps=(
                len(self.config.runs) * halving.rungs[-1]
                if halving
                else sum(result.summary.total_steps for result in results.values())
            ),
            seconds=seconds,
            figures=[] if top is None else top.figures,
            samples=[],
            report=path / REPORT_FILE if is_kept else None,
            state_path=None if top is None else top.state_path,
            sampler_path=None if top is None else top.sampler_path,
            next_command="" if not is_kept else resume if is_left or top is None else top.next_command,
            usage=_usage([result.summary for result in results.values()]),
            stopped=self.context.interrupt.reason if is_interrupted else None,
            registered_model=self.registered_model,
        )
        artifacts = {
            **({"folder": str(path), "report": str(summary.report)} if is_kept else {}),
            **by_run(results, lambda result: result.artifacts),
        }
        metrics = by_run(results, lambda result: result.metrics)
        return RunResult(state=self, metrics=metrics, artifacts=artifacts, summary=summary)


def _usage(summaries: Sequence[RunSummary]) -> Mapping[str, float] | None:
    usages = [summary.usage for summary in summaries if summary.usage is not None]
    names = dict.fromkeys(name for usage in usages for name in usage)
    return {name: sum(usage.get(name, 0) for usage in usages) for name in names} or None
