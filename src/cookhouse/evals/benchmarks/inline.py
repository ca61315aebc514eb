"""A benchmark as an evaluator of a run."""

from cookhouse.chat import Renderer
from cookhouse.evals.benchmarks.answerers import SamplingAnswerer
from cookhouse.evals.benchmarks.attempts import Attempt, AttemptLog
from cookhouse.evals.benchmarks.benchmark import Benchmark
from cookhouse.evals.benchmarks.figures import as_metrics, benchmark_figures
from cookhouse.evals.benchmarks.loading import LoadedBenchmark, load_benchmark, sources_of_benchmarks
from cookhouse.evals.benchmarks.runner import AnswerOptions, ask_benchmark
from cookhouse.evals.evaluator import EvaluatorBuilder, Metrics, SamplingClientEvaluator
from cookhouse.models.catalog import context_tokens
from cookhouse.sampling_client import SamplingClient
from cookhouse.settings import TrainingSettings
from cookhouse.telemetry import scope, table

_SHOWN = 20
"""Attempts of each outcome in the notes."""


class BenchmarkEvaluator(SamplingClientEvaluator):
    """Asks the items of a benchmark greedily, or as `options` says; metrics are those of `cookhouse eval`."""

    def __init__(
        self, loaded: LoadedBenchmark, renderer: Renderer, options: AnswerOptions, *, context_tokens: int | None = None
    ) -> None:
        self.attempts: list[Attempt] = []
        """Those of the last call."""
        self._loaded = loaded
        self._renderer = renderer
        self._options = options
        self._context_tokens = context_tokens

    @property
    def benchmark(self) -> Benchmark:
        """The benchmark that it asks."""
        return self._loaded.benchmark

    async def prepare(self) -> None:
        if self._loaded.benchmark.prepare is not None:
            await self._loaded.benchmark.prepare()

    async def __call__(self, client: SamplingClient) -> Metrics:
        log = AttemptLog()
        answerer = SamplingAnswerer(client, self._renderer, context_tokens=self._context_tokens)
        await self.prepare()
        await ask_benchmark(self._loaded, answerer, self._options, log)
        self.attempts = log.attempts(self._loaded.name)
        self._note()
        return as_metrics(self._loaded.name, benchmark_figures(self._loaded, self.attempts))

    def _note(self) -> None:
        by_outcome: dict[str, list[Attempt]] = {}
        for attempt in self.attempts:
            by_outcome.setdefault(attempt.outcomes[0], []).append(attempt)
        for outcome, attempts in by_outcome.items():
            with scope(f"{outcome} ({len(attempts)})"):
                table([self._row(attempt) for attempt in attempts[:_SHOWN]])

    def _row(self, attempt: Attempt) -> dict[str, str]:
        item, answer = self._loaded.items[attempt.place], attempt.answers[0]
        said = answer.text if answer.error is None else f"no answer: {answer.error}"
        return {"asked": str(item.messages[-1]["content"]), "expected": item.expected, "answered": said}


def benchmark_evaluator(benchmark: Benchmark) -> EvaluatorBuilder:
    """Makes evaluators of a benchmark: of `num_eval` items, read from where `benchmark_data` says."""

    def make(settings: TrainingSettings, renderer: Renderer) -> BenchmarkEvaluator | None:
        if not settings.num_eval:
            return None
        source = sources_of_benchmarks([benchmark], settings.benchmark_data)[benchmark.name]
        return BenchmarkEvaluator(
            load_benchmark(benchmark, source, settings.num_eval),
            renderer,
            AnswerOptions(seed=settings.seed),
            context_tokens=context_tokens(settings.model_name),
        )

    return make
