"""A task of Inspect AI as an evaluator of a run."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from inspect_ai import Task, eval_async
from inspect_ai.log import EvalLog
from inspect_ai.model import GenerateConfig, Model, ModelAPI, modelapi

from cookhouse.catalog import context_tokens
from cookhouse.chat import Renderer
from cookhouse.errors import ServiceError
from cookhouse.evals.evaluator import EvaluatorBuilder, Metrics, SamplingClientEvaluator
from cookhouse.evals.inspect.model import AskedClient, SampledModel
from cookhouse.sampling_client import SampleClient
from cookhouse.settings import TrainingSettings

_NO_NAME = re.compile(r"[^\w.@-]+")


class InspectEvaluator(SamplingClientEvaluator):
    """Runs a task with the weights of the run as its model: `inspect/TASK/SCORER/METRIC` for each figure.

    Samples that fail are of Inspect AI's own log, in `log_dir`; a task that fails as a whole raises.
    """

    def __init__(
        self, make_task: Callable[[], Task], renderer: Renderer, *, model_name: str, log_dir: Path, seed: int = 0
    ) -> None:
        self._make_task = make_task
        self._renderer = renderer
        self._model_name = model_name
        self._log_dir = log_dir
        self._seed = seed

    async def __call__(self, client: SampleClient) -> Metrics:
        """The task's metrics. Raises `ServiceError` with its error if it failed."""
        context = context_tokens(self._model_name)
        asked = AskedClient(client=client, renderer=self._renderer, context_tokens=context)
        model = Model(_model_of_run(self._model_name, asked), GenerateConfig(seed=self._seed))
        [log] = await eval_async(self._make_task(), model=model, log_dir=str(self._log_dir))
        return metrics_of(log)


@modelapi(name="cookhouse_run")
def _model_of_run() -> type[ModelAPI]:
    """Inspect AI takes none but registered models."""
    return SampledModel


def inspect_evaluator(make_task: Callable[[], Task]) -> EvaluatorBuilder:
    """Makes what `evaluators=` takes, of a function that makes a task."""

    def build(settings: TrainingSettings, renderer: Renderer) -> InspectEvaluator:
        folder = Path(settings.log_path) if settings.log_path else Path()
        return InspectEvaluator(
            make_task,
            renderer,
            model_name=settings.model_name,
            log_dir=folder / "inspect",
            seed=settings.seed,
        )

    return build


def metrics_of(log: EvalLog) -> dict[str, float | None]:
    """The figures of a finished task. Raises `ServiceError` with the task's own error where it did not finish."""
    if log.status != "success" or log.results is None:
        reason = log.error.message if log.error else f"it ended with status {log.status}"
        raise ServiceError(f"the Inspect task {log.eval.task} failed: {reason}")
    return {
        "/".join(["inspect", *map(_name, (log.eval.task, score.name, metric.name))]): _figure(metric.value)
        for score in log.results.scores
        for metric in score.metrics.values()
    }


def _name(text: Any) -> str:
    return _NO_NAME.sub("_", str(text).split("/")[-1])


def _figure(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) else None
