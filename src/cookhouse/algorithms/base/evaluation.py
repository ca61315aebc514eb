"""Evaluators in a run: what is measured at points of it, and what becomes of the figures."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypedDict

import chz

from cookhouse.algorithms.base.judge import judges_asked, open_judge
from cookhouse.algorithms.base.second_model import open_sampler
from cookhouse.algorithms.stages.stage import stage
from cookhouse.algorithms.stages.state import RunContext
from cookhouse.callables.blocking import watched
from cookhouse.callables.returned import returned_figures
from cookhouse.chat import Message, Renderer, turn_text
from cookhouse.envs import SecondModels
from cookhouse.errors import CookhouseError, InputError
from cookhouse.evals import (
    EVALUATORS,
    Benchmark,
    Evaluator,
    EvaluatorBuilder,
    ExactMatchEvaluator,
    HeldOutAnswer,
    NLLEvaluator,
    PreparedEvaluator,
    TrainingClientEvaluator,
)
from cookhouse.evals import Metrics as MaybeMetrics
from cookhouse.evals.benchmarks.inline import BenchmarkEvaluator
from cookhouse.files import file_errors, write_whole
from cookhouse.naming import check_call, names_in
from cookhouse.report import RecordedAnswer, noted_page
from cookhouse.settings import TrainingSettings
from cookhouse.settings.defaults import has_default
from cookhouse.settings.judge import named_evaluators
from cookhouse.telemetry import Entry, Recording, Telemetry, Values, after_step, entries_to_json, events, split_values
from cookhouse.training import Cadence, SamplingClient, ScheduledEvaluation, ServiceClient, TrainingClient


class Asked(TypedDict):
    """The conversation before the answer, as a `RecordedAnswer` holds it."""

    prompt: str
    earlier: tuple[tuple[str, str], ...]


def asked_of(messages: Sequence[Message]) -> Asked:
    """Texts of a conversation that ends before the answer."""
    *earlier, last = messages
    return {"prompt": turn_text(last), "earlier": tuple((message["role"], turn_text(message)) for message in earlier)}


def recorded_answer(answer: HeldOutAnswer) -> RecordedAnswer:
    """Record of an answer that is compared with a text."""
    return RecordedAnswer(
        **asked_of(answer.prompt),
        expected=answer.expected,
        answer=answer.answer,
        is_correct=answer.is_correct,
        group=answer.group,
    )


class EvaluatorRun:
    """One evaluator at points of a run. Metrics are its own under `test/`; what it could not measure is left out. What
    it notes (`scope`, `note`, `table`) is handed to `keep` with the step, if there is one.

    A `TrainingClientEvaluator` is asked before the next step is submitted; any other samples from a snapshot, which
    later steps do not reach.
    """

    def __init__(
        self, evaluator: Evaluator, telemetry: Telemetry, keep: Callable[[int, Sequence[Entry]], None] | None = None
    ) -> None:
        self._evaluator = evaluator
        self._telemetry = telemetry
        self._keep = keep

    async def begin(self, client: TrainingClient, step: int) -> Coroutine[Any, Any, Values]:
        if isinstance(self._evaluator, TrainingClientEvaluator):
            return self._record(step, *await _measured(self._evaluator, client))
        return self._sample(step, self._evaluator, client.save_weights_and_get_sampling_client())

    async def _sample(self, step: int, evaluator: Any, snapshot: Awaitable[SamplingClient]) -> Values:
        return await self._record(step, *await _measured(evaluator, await snapshot))

    async def _record(self, step: int, found: MaybeMetrics, entries: Sequence[Entry]) -> Values:
        if entries and self._keep is not None:
            self._keep(step, entries)
        return record_metrics(self._telemetry, step, found)


async def _measured(evaluator: Callable[..., Any], client: Any) -> tuple[MaybeMetrics, list[Entry]]:
    """Metrics of an evaluator, and its notes. Raises `InputError` for figures that are none."""
    recording = Recording()
    with recording.active():
        found = returned_figures(evaluator, await watched(evaluator, client))
    return found, recording.drain()


class HeldOutEvaluation:
    """Held-out conversations: their loss, measured by `forward`, which leaves no gradient, and how many are answered
    exactly, by sampling from a snapshot, which later steps do not reach. Of plain texts there is the loss alone.
    """

    def __init__(
        self,
        *,
        nll: NLLEvaluator,
        exact_match: ExactMatchEvaluator | None,
        loss_alone_at: int | None = None,
        telemetry: Telemetry,
        keep: Callable[[int, Sequence[RecordedAnswer]], None],
    ) -> None:
        """`loss_alone_at` is a step of whose weights the loss alone is measured."""
        self._loss_alone_at = loss_alone_at
        self._nll = nll
        self._exact_match = exact_match
        self._telemetry = telemetry
        self._keep = keep

    async def begin(self, client: TrainingClient, step: int) -> Coroutine[Any, Any, Values]:
        if self._exact_match is None or step == self._loss_alone_at:
            return self._finish(step, await self._nll(client))
        snapshot = client.save_weights_and_get_sampling_client()
        return self._answer(step, await self._nll(client), self._exact_match, snapshot)

    async def _answer(
        self, step: int, loss: MaybeMetrics, exact_match: ExactMatchEvaluator, snapshot: Awaitable[SamplingClient]
    ) -> Values:
        found = {**loss, **await exact_match(await snapshot)}
        self._keep(step, [recorded_answer(answer) for answer in exact_match.answers])
        return await self._finish(step, found)

    async def _finish(self, step: int, found: MaybeMetrics) -> Values:
        return record_metrics(self._telemetry, step, found)


def record_metrics(telemetry: Telemetry, step: int, found: MaybeMetrics) -> Values:
    """Write the metrics, under `test/`; and the event `eval.complete`."""
    values = {f"test/{name}": value for name, value in found.items() if value is not None}
    numbers, text = split_values(values)
    telemetry.event(events.EVAL_COMPLETE, step=step, metrics=numbers, **text)
    return values


@dataclass(frozen=True, kw_only=True)
class NamedEvaluator:
    """An evaluator of a run, and when it measures."""

    name: str
    evaluator: Evaluator
    cadence: Cadence


@stage(doing="preparing the evaluators", uses=("evaluators",))
async def init_evaluators(
    context: RunContext, config: TrainingSettings, renderer: Renderer
) -> Sequence[NamedEvaluator]:
    """Make the evaluators that settings and adapters name, and see that they can measure."""
    made = await asyncio.to_thread(make_evaluators, config, renderer, context.adapters.evaluators)
    context.notes += _idle_notes(config, [each.name for each in made])
    for each in made:
        if isinstance(each.evaluator, PreparedEvaluator):
            await each.evaluator.prepare()
    judges_asked(config, asked_benchmarks(made))  # refuses one that is missing
    return made


def _idle_notes(config: TrainingSettings, made: Collection[str]) -> list[str]:
    """Notes on settings of evaluation that have no effect."""
    if config.num_eval:
        return []
    idle = [
        f"evaluator {name} measures nothing: num_eval is 0" for name in named_evaluators(config) if name not in made
    ]
    names = ["num_samples", "test_path", *([] if made else ["eval_every", "eval_at_start"])]
    known = chz.chz_fields(config)
    return idle + [
        f"{name}={getattr(config, name)} changes nothing in what is measured: num_eval is 0"
        for name in names
        if name in known and getattr(config, name) not in (None, 0) and not has_default(config, name)
    ]


def asked_benchmarks(evaluators: Sequence[NamedEvaluator]) -> list[Benchmark]:
    """The benchmarks among evaluators."""
    return [each.evaluator.benchmark for each in evaluators if isinstance(each.evaluator, BenchmarkEvaluator)]


async def open_judges(
    context: RunContext, config: TrainingSettings, evaluators: Sequence[NamedEvaluator], service: ServiceClient
) -> None:
    """Open who judges answers of the run's evaluators, if one of them asks for it; the session is open."""
    judges = judges_asked(config, asked_benchmarks(evaluators))
    if not judges:
        return
    models = SecondModels(lambda name: open_sampler(service, name, context.registry), context.adapters.completer)
    model = await open_judge(config, models, context.adapters, context.run_folders)
    for judge in judges:
        judge.model = model


def make_evaluators(
    config: TrainingSettings, renderer: Renderer, own: Mapping[str, EvaluatorBuilder] | None = None
) -> list[NamedEvaluator]:
    """The evaluators that the settings name, at their two cadences, and those of the adapters, at the first.

    Raises:
        UnknownNameError: there is no such evaluator.
        InputError: it cannot be imported, or made.
    """
    often = Cadence(every=config.eval_every, at_start=config.eval_at_start)
    seldom = Cadence(every=config.infrequent_eval_every)
    chosen = [
        *((name, EVALUATORS.find(name), often) for name in names_in(config.evaluators)),
        *((name, EVALUATORS.find(name), seldom) for name in names_in(config.infrequent_evaluators)),
        *((name, make, often) for name, make in (own or {}).items()),
    ]
    return [
        NamedEvaluator(name=name, evaluator=evaluator, cadence=cadence)
        for name, make, cadence in chosen
        if (evaluator := _made(name, make, config, renderer)) is not None
    ]


def _made(name: str, make: EvaluatorBuilder, config: TrainingSettings, renderer: Renderer) -> Evaluator | None:
    check_call(name, make, ("settings", "renderer"), EVALUATORS.wants)  # of one of the adapters
    try:
        made: Any = make(config, renderer)
    except CookhouseError:
        raise
    except Exception as error:  # of the user's own code
        raise InputError(f"evaluator {name} cannot be made: {type(error).__name__}: {error}") from error
    if made is None:
        return None
    wants = "an evaluator is an async function of a sampling client, or an object of a class of evaluators"
    if isinstance(made, type) or not callable(made):
        raise InputError(f"{name} made {made!r:.100}; {wants}")
    check_call(f"what {name} made: ", made, ("client",), wants)
    evaluator: Evaluator = made
    return evaluator


def scheduled_evaluators(
    evaluators: Sequence[NamedEvaluator], telemetry: Telemetry, folder: Path
) -> list[ScheduledEvaluation]:
    """The evaluators as evaluations of a run, which keeps what they note in `folder`."""
    return [
        ScheduledEvaluation(
            name=each.name,
            evaluation=EvaluatorRun(each.evaluator, telemetry, partial(keep_noted, folder, str(number), each.name)),
            cadence=each.cadence,
        )
        for number, each in enumerate(evaluators)
    ]


def keep_noted(folder: Path, mark: str, name: str, step: int, entries: Sequence[Entry]) -> None:
    """Keep what an evaluator noted, as a page and as JSON; `mark` distinguishes its files from those of others."""
    with file_errors(folder):
        folder.mkdir(exist_ok=True)
    path = folder / f"{step:06d}-{mark}.html"
    write_whole(path, noted_page(entries, title=f"{name} {after_step(step)}"))
    record = {"evaluator": name, "step": step, "entries": entries_to_json(entries)}
    write_whole(path.with_suffix(".json"), json.dumps(record) + "\n")
