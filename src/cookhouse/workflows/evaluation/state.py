"""State of an evaluation, passed from stage to stage, and its progress."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cookhouse.algorithms.stages.state import RunState
from cookhouse.chat import Renderer
from cookhouse.data import DataSource
from cookhouse.evals import Answerer, Benchmark, Estimate, LoadedBenchmark
from cookhouse.runs import RunFolder
from cookhouse.settings import EvalSettings
from cookhouse.telemetry import Telemetry, events
from cookhouse.training import ServiceClient
from cookhouse.workflows.evaluation.attempt_files import AttemptFiles

if TYPE_CHECKING:
    from cookhouse.evals.inspect.logs import InspectResult
    from cookhouse.evals.inspect.tasks import InspectTask


@dataclass(kw_only=True)
class EvaluationState(RunState):
    """Of one model."""

    config: EvalSettings
    benchmarks: Sequence[Benchmark]
    sources: Mapping[str, DataSource]
    """Of the rows, by the benchmark's name."""
    loaded: Sequence[LoadedBenchmark] = field(init=False)
    tasks: "Sequence[InspectTask]" = ()
    """Of Inspect AI."""
    renderer: Renderer | None = None
    """None: the service is not asked."""
    folder: RunFolder = field(init=False)
    log: AttemptFiles = field(init=False)
    answerer: Answerer = field(init=False)
    service: ServiceClient = field(init=False)
    """Where it is the service that answers."""
    inspected: "list[InspectResult]" = field(default_factory=list)
    """Of the tasks that have been run."""
    figures: dict[str, Mapping[str, Estimate]] = field(default_factory=dict)
    """By benchmark or task, and name."""
    eval_results: dict[str, Any] = field(default_factory=dict)
    """The same as metrics, under `test/`."""


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
