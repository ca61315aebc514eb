"""State of an evaluation, passed from stage to stage, and what it says of itself."""

import shlex
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cookhouse import algorithms as alg
from cookhouse.chat import Renderer
from cookhouse.data import DataSource
from cookhouse.evals import Answerer, Benchmark, Estimate, LoadedBenchmark, Outcome, is_of_group
from cookhouse.evals.inspect.records import InspectResult, InspectTask
from cookhouse.naming import names_in
from cookhouse.runs import Figure, RunFolder, RunResult, RunSummary
from cookhouse.runs.names import ATTEMPT_ANSWERS_FILE, INSPECT_FOLDER, REPORT_FILE
from cookhouse.settings import EvalSettings
from cookhouse.telemetry import Telemetry, events, find_metric
from cookhouse.workflows.evaluation.attempt_files import AttemptFiles


@dataclass(kw_only=True)
class EvaluationState(alg.RunState):
    """Of one model."""

    config: EvalSettings
    benchmarks: Sequence[Benchmark]
    sources: Mapping[str, DataSource]
    """Of the rows, by the benchmark's name."""
    loaded: Sequence[LoadedBenchmark] = field(init=False)
    tasks: Sequence[InspectTask] = ()
    """Of Inspect AI."""
    renderer: Renderer | None = None
    """None: the service is not asked."""
    folder: RunFolder = field(init=False)
    log: AttemptFiles = field(init=False)
    answerer: Answerer = field(init=False)
    inspected: list[InspectResult] = field(default_factory=list)
    """Of the tasks that have been run."""
    figures: dict[str, Mapping[str, Estimate]] = field(default_factory=dict)
    """By benchmark or task, and name."""
    eval_results: dict[str, Any] = field(default_factory=dict)
    """The same as metrics, under `test/`."""

    def facts(self) -> Mapping[str, str]:
        config = self.config
        samples = "" if config.num_samples == 1 else f", {config.num_samples} samples of each item"
        return {
            "weights": config.weights or config.model_name,
            **asked_facts(self.loaded, self.sources, self.tasks),
            "sampling": f"temperature {config.temperature:g}, seed {config.seed}{samples}",
        }

    def result(self, seconds: float) -> RunResult[Any]:
        """Every figure, and where what was answered can be read."""
        context, path, is_whole = self.context, self.folder.path, self.context.status != "interrupted"
        folder = shlex.quote(str(path))
        pages = {
            f"{name}/transcripts": str(page) for name in self.figures if (page := page_of(self.folder, name)).exists()
        }
        logs = {f"{result.name}/log": str(result.log) for result in self.inspected}
        report = path / REPORT_FILE
        resume = f"cookhouse {context.command} log_path={folder} behavior_if_log_dir_exists=resume"
        summary = RunSummary(
            recipe=context.recipe,
            model_name=self.config.weights or self.config.model_name,
            folder=path,
            is_interrupted=not is_whole,
            num_steps=0,
            total_steps=0,
            seconds=seconds,
            figures=_figures(self.figures),
            samples=(),
            remark=logs_remark(self.config, path / INSPECT_FOLDER),
            report=report if report.exists() else None,
            state_path=None,
            sampler_path=None,
            next_command=f"cookhouse report {folder}" if is_whole else resume,
            stopped=None if is_whole else context.interrupt.reason,
        )
        artifacts = {
            "folder": str(path),
            "report": str(report),
            "answers": str(path / ATTEMPT_ANSWERS_FILE),
            **pages,
            **logs,
        }
        metrics = dict(self.eval_results)
        if len(self.figures) == 1 and (correct := f"test/{next(iter(self.figures))}/correct") in metrics:
            self.eval_results["accuracy"] = metrics[correct]
        return RunResult(state=self, metrics=metrics, artifacts=artifacts, summary=summary)


def asked_facts(
    loaded: Sequence[LoadedBenchmark], sources: Mapping[str, DataSource], tasks: Sequence[InspectTask]
) -> dict[str, str]:
    """What is asked, by the name of each benchmark and task."""
    items = {each.name: f"{len(each.items):,} of {each.num_all:,} items from {sources[each.name]}" for each in loaded}
    samples = {
        task.name: f"{len(task.asked_ids):,} of {len(task.all_ids):,} samples of {task.spec}"
        + (f", {task.epochs} times" if task.epochs > 1 else "")
        for task in tasks
    }
    return items | samples


def _figures(figures: Mapping[str, Mapping[str, Estimate]]) -> list[Figure]:
    return [
        Figure(
            name=f"test/{benchmark}/{name}",
            label=f"{benchmark} {name}",
            before=None,
            after=estimate.mean,
            is_share=is_shown_as_share(f"{benchmark}/{name}"),
            stderr=estimate.stderr,
            n=estimate.n,
        )
        for benchmark, estimates in figures.items()
        for name, estimate in estimates.items()
        if not is_of_group(name) and (name not in set(Outcome) or estimate.mean)
    ]


def is_shown_as_share(name: str) -> bool:
    """True if a figure is a share. Those of benchmarks are; of a task of Inspect AI, the metric's name shows it."""
    return not name.startswith("inspect/") or find_metric(name).is_share


def page_of(folder: RunFolder, name: str) -> Path:
    """Path of the page of a benchmark or a task."""
    return folder.evaluations / f"{name.replace('/', '-')}.html"


def has_inspect_tasks(config: EvalSettings) -> bool:
    """True if tasks of Inspect AI are named."""
    return bool(names_in(config.inspect))


def logs_remark(config: EvalSettings, folder: Path) -> str | None:
    """Remark on how to read Inspect AI's own logs in a folder, if tasks of its were asked."""
    if not has_inspect_tasks(config):
        return None
    return f"Inspect AI's own logs: inspect view --log-dir {shlex.quote(str(folder))}"


class ItemProgress:
    """Tells of each item of a benchmark that is done; `done` were before."""

    def __init__(self, telemetry: Telemetry, name: str, total: int, done: int = 0) -> None:
        self._telemetry = telemetry
        self._name, self._total = name, total
        self._before = self._done = done
        self._start = time.monotonic()

    def __call__(self) -> None:
        self._done += 1
        pace = (time.monotonic() - self._start) / (self._done - self._before)
        metrics = {"done": self._done, "total": self._total, "seconds_left": pace * (self._total - self._done)}
        self._telemetry.event(events.EVAL_PROGRESS, metrics=metrics, benchmark=self._name)
