"""Every item of a benchmark is asked and graded, many at a time."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from cookhouse.chat import Message
from cookhouse.evals.benchmarks.answerers import Answerer, AnswerSampling
from cookhouse.evals.benchmarks.attempts import AttemptLog, Grade, SampledAnswer
from cookhouse.evals.benchmarks.benchmark import BenchmarkItem
from cookhouse.evals.benchmarks.loading import LoadedBenchmark
from cookhouse.rl import derive_seed

_MAX_SEED = 2**31
"""What every service takes, so that weights give the same answers by whatever protocol they are asked."""


@dataclass(frozen=True, kw_only=True)
class AnswerOptions:
    """Options with which the items of benchmarks are asked."""

    num_samples: int = 1
    max_tokens: int | None = None
    """Of each answer; None: what the benchmark says."""
    temperature: float = 0.0
    seed: int = 0
    system_prompt: str | None = None
    max_concurrent: int = 64
    """Items being answered or graded at a time."""

    def draw(self, loaded: LoadedBenchmark, place: int) -> AnswerSampling:
        """Sampling parameters for an item: the same for the same seed, whatever else is asked."""
        return AnswerSampling(
            num_samples=self.num_samples,
            max_tokens=self.max_tokens or loaded.benchmark.max_tokens,
            temperature=self.temperature,
            seed=derive_seed(self.seed, place, 0) % _MAX_SEED,
            choices=loaded.items[place].choices,
        )

    def messages(self, item: BenchmarkItem) -> Sequence[Message]:
        """Messages of the prompt."""
        if self.system_prompt is None:
            return item.messages
        return [{"role": "system", "content": self.system_prompt}, *item.messages]


async def ask_benchmark(
    loaded: LoadedBenchmark,
    answerer: Answerer,
    options: AnswerOptions,
    log: AttemptLog,
    *,
    on_done: Callable[[], None] = lambda: None,
    is_stopped: Callable[[], bool] = lambda: False,
) -> None:
    """Answer and grade every item that `log` does not have yet; `on_done` hears of each. Once `is_stopped` says so,
    nothing more is asked.

    Raises:
        InputError, ServiceError: nothing can be answered; what has been is in `log`.
    """
    name = loaded.name
    slots = asyncio.Semaphore(options.max_concurrent)

    async def attempt(place: int, item: BenchmarkItem) -> None:
        async with slots:
            if is_stopped():
                return
            key = (name, place)
            if key not in log.answers:
                log.add_answers(key, await answerer(options.messages(item), options.draw(loaded, place)))
            log.add_grades(key, [await _grade(item, answer) for answer in log.answers[key]])
            on_done()

    try:
        async with asyncio.TaskGroup() as group:
            for place, item in loaded.items.items():
                if (name, place) not in log.grades:
                    group.create_task(attempt(place, item))
    except ExceptionGroup as failures:
        raise failures.exceptions[0] from failures


async def _grade(item: BenchmarkItem, answer: SampledAnswer) -> Grade:
    if answer.error is not None:
        return Grade(correct=0.0, is_well_formed=False)
    grade = await item.grade(answer.text)
    if not answer.logprobs:
        return grade
    by_length = {choice: logprob / max(len(choice), 1) for choice, logprob in answer.logprobs.items()}
    likeliest = await item.grade(max(by_length, key=by_length.__getitem__))
    return replace(grade, metrics={**grade.metrics, "correct_norm": likeliest.correct})
