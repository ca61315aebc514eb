"""A task of Inspect AI as an evaluator of a run."""

import asyncio
from collections.abc import Callable
from pathlib import Path

from inspect_ai import Task, eval_async
from inspect_ai.model import GenerateConfig

from cookhouse.chat import Renderer
from cookhouse.errors import InputError
from cookhouse.evals.benchmarks.answerers import SamplingAnswerer
from cookhouse.evals.benchmarks.figures import as_metrics
from cookhouse.evals.evaluator import EvaluatorBuilder, Metrics, SamplingClientEvaluator
from cookhouse.evals.inspect.logs import figures_of, result_name
from cookhouse.evals.inspect.model import SampledModel
from cookhouse.evals.inspect.opening import opened, opened_model
from cookhouse.evals.inspect.running import inspect_turn
from cookhouse.models.catalog import context_tokens
from cookhouse.sampling_client import SamplingClient
from cookhouse.settings import TrainingSettings


class InspectEvaluator(SamplingClientEvaluator):
    """Runs a task with the weights of the run as its model: `inspect/TASK/SCORER/METRIC` for each figure, with
    `_stderr` and `_n` behind it, as `cookhouse eval --inspect` names them.

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

    async def prepare(self) -> None:
        try:
            await asyncio.to_thread(self._make_task)
        except Exception as error:  # of the user's own code
            raise InputError(f"the task cannot be made: {type(error).__name__}: {error}") from error

    async def __call__(self, client: SamplingClient) -> Metrics:
        """The task's metrics. Raises `ServiceError` with its error if it failed."""
        context = context_tokens(self._model_name)
        api = SampledModel(self._model_name, SamplingAnswerer(client, self._renderer, context_tokens=context))
        async with inspect_turn():
            with opened(api):
                model = opened_model(self._model_name, GenerateConfig(seed=self._seed))
                logs = await eval_async(self._make_task(), model=model, log_dir=str(self._log_dir), ctl_server=False)
        return as_metrics(result_name(logs[0].eval.task), figures_of(logs[0]))


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
