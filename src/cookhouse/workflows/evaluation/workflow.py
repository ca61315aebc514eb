"""An evaluation: benchmarks are read, asked and graded, and what was said can be read by what came of it."""

import asyncio
import logging
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from cookhouse import algorithms as alg
from cookhouse.chat import Renderer
from cookhouse.data import DataSource, build_renderer
from cookhouse.envs import SecondModels
from cookhouse.errors import InputError
from cookhouse.evals import (
    Answerer,
    AnswerOptions,
    Attempt,
    Benchmark,
    CompletedBy,
    CompleterAnswerer,
    Estimate,
    LoadedBenchmark,
    OpenAIAnswerer,
    SamplingAnswerer,
    as_metrics,
    ask_benchmark,
    benchmark_figures,
    benchmarks_named,
    load_benchmark,
    sources_of_benchmarks,
)
from cookhouse.evals.inspect import require_inspect
from cookhouse.evals.inspect.records import InspectResult, InspectTask
from cookhouse.files import file_errors, write_whole
from cookhouse.grading import CompleterPreferenceModel, PreferenceModel
from cookhouse.models.catalog import context_tokens
from cookhouse.naming import names_in
from cookhouse.report import transcripts_page
from cookhouse.runs import RunFolder, open_folder
from cookhouse.runs.names import ATTEMPT_ANSWERS_FILE, INSPECT_FOLDER
from cookhouse.settings import EvalSettings
from cookhouse.telemetry import JsonlSink, LogSink, TraceSink, events
from cookhouse.training import SamplingClient, ServiceClient, Waiting, close_service, service_errors
from cookhouse.workflows.evaluation.attempt_files import AttemptFiles, write_questions
from cookhouse.workflows.evaluation.inspect_stages import load_inspect_tasks, run_inspect_tasks
from cookhouse.workflows.evaluation.state import (
    EvaluationState,
    ItemProgress,
    asked_facts,
    has_inspect_tasks,
    page_of,
)

logger = logging.getLogger(__name__)

_REASON_CHARACTERS = 300


def evaluation_workflow(config: EvalSettings) -> alg.Workflow[EvaluationState]:
    """The stages of an evaluation."""
    benchmarks = evaluated_benchmarks(config)
    sources = sources_of_benchmarks(benchmarks, config.benchmark_data)
    inspects = has_inspect_tasks(config)
    needs = ("service",) if config.openai_base_url is None else ()
    opening = alg.Stage(
        name="open_model",
        doing="loading the model",
        function=_open_model,
        needs=needs,
        uses=("completer", "registry"),
    )
    return alg.Workflow(
        name="evaluation",
        state_class=EvaluationState,
        inputs={"config": config, "benchmarks": benchmarks, "sources": sources},
        setup=(load_benchmarks, *([load_inspect_tasks] if inspects else []), init_tokenizer, init_folder),
        body=alg.stages_in_order(opening, ask, *([run_inspect_tasks] if inspects else []), score),
        final=(write_transcripts,),
        cleanup=alg.cleanup,
        data_files=sources,
    )


def evaluated_benchmarks(config: EvalSettings) -> list[Benchmark]:
    """Benchmarks that are named; none if only tasks of Inspect AI are.

    Raises:
        InputError: as `benchmarks_named`, or Inspect AI is needed and not installed.
    """
    if has_inspect_tasks(config):
        require_inspect("inspect=")
    return [] if has_inspect_tasks(config) and not names_in(config.benchmark) else benchmarks_named(config.benchmark)


@alg.stage(doing="reading the benchmarks", uses=("datasets",))
async def load_benchmarks(
    context: alg.RunContext, config: EvalSettings, benchmarks: Sequence[Benchmark], sources: Mapping[str, DataSource]
) -> Sequence[LoadedBenchmark]:
    """Read the items of every benchmark, and see that their answers can be graded here."""
    # The run directory's own sources where it has them: they are of its store.
    kept = {**sources, **context.folder.data}
    loaded = [await asyncio.to_thread(load_benchmark, each, kept[each.name], config.limit) for each in benchmarks]
    for each in benchmarks:
        if each.prepare is not None:
            await each.prepare()
    alg.judges_asked(config, benchmarks)  # refuses one that is missing
    return loaded


@alg.stage(doing="loading the tokenizer")
async def init_tokenizer(context: alg.RunContext, config: EvalSettings) -> Renderer | None:
    """Load the tokenizer, and the renderer over it, where the service is to answer."""
    if context.adapters.completer is not None or config.openai_base_url is not None:
        return None
    return await asyncio.to_thread(build_renderer, config.model_name, config.renderer_name, force=config.force_renderer)


@alg.stage(doing="opening the run directory", leaves_files=True)
async def init_folder(
    context: alg.RunContext,
    config: EvalSettings,
    sources: Mapping[str, DataSource],
    loaded: Sequence[LoadedBenchmark],
    tasks: Sequence[InspectTask],
) -> tuple[RunFolder, AttemptFiles]:
    """Open the run directory, with what was answered there before."""
    telemetry = context.telemetry
    folder = await asyncio.to_thread(open_folder, context.folder, context.choice)
    context.closing.push_async_callback(_close_folder, context, folder)
    with file_errors(folder.path):
        for sink in (JsonlSink(folder.metrics), TraceSink(folder.trace), LogSink(), folder.run_json):
            telemetry.add(sink)
    await alg.start_sinks(context, folder.path)
    alg.watch_headline(context, folder)
    log = await asyncio.to_thread(AttemptFiles, folder.path)
    await asyncio.to_thread(write_questions, folder.path, loaded)
    model = config.weights or config.model_name
    telemetry.event(events.RUN_START, step=0, recipe=context.recipe, model=model, folder=str(folder.path))
    for name, text in asked_facts(loaded, sources, tasks).items():
        telemetry.event(events.DATA_COUNTS, text=f"{name}: {text}")
    return folder, log


async def _close_folder(context: alg.RunContext, folder: RunFolder) -> None:
    """A folder in which nothing was answered goes, unless its logs may help."""
    context.telemetry.event(events.RUN_END, status=context.status)
    await asyncio.to_thread(folder.end, context.status, context.error)
    folder.close()
    has_answers = any((folder.path / name).exists() for name in (ATTEMPT_ANSWERS_FILE, INSPECT_FOLDER))
    if not has_answers and (isinstance(context.error, InputError) or context.interrupt.is_forced):
        folder.discard()


async def _open_model(
    context: alg.RunContext,
    config: EvalSettings,
    benchmarks: Sequence[Benchmark],
    renderer: Renderer | None,
    folder: RunFolder,
) -> Answerer:
    """Open what answers: a completer that the adapters bring, an OpenAI-compatible address, or the service."""
    name, service = config.weights or config.model_name, None
    if context.adapters.completer is not None:
        answerer: Answerer = CompleterAnswerer(context.adapters.completer(name))
    elif config.openai_base_url is not None:
        answerer = _at_address(context, config.openai_base_url, name)
    else:
        assert renderer is not None
        answerer, service = await _service_answerer(context, config, renderer)
    if judges := alg.judges_asked(config, benchmarks):
        model = await _open_judge(context, config, service)
        for judge in judges:
            judge.model = model
    await asyncio.to_thread(folder.begin)
    return answerer


def _at_address(context: alg.RunContext, url: str, model: str) -> OpenAIAnswerer:
    answerer = OpenAIAnswerer(url, model, api_key=os.environ.get("OPENAI_API_KEY") or None)
    context.closing.push_async_callback(answerer.aclose)
    return answerer


async def _service_answerer(
    context: alg.RunContext, config: EvalSettings, renderer: Renderer
) -> tuple[Answerer, ServiceClient]:
    place = alg.sampler_place(config.weights or config.model_name, context.registry)
    waiting = Waiting(context.telemetry)
    with service_errors("opening a session"):
        service = await waiting.wait(context.connect(), "the service to be ready")
        context.closing.push_async_callback(lambda: close_service(service, context.status))
        client = await waiting.wait(alg.sampler_at(service, place), "the model to be loaded")
        limit = await service.context_tokens(config.model_name)
    limits = [tokens for tokens in (limit, context_tokens(config.model_name)) if tokens is not None]
    return SamplingAnswerer(client, renderer, context_tokens=min(limits, default=None)), service


async def _open_judge(context: alg.RunContext, config: EvalSettings, service: ServiceClient | None) -> PreferenceModel:
    """The judge: asked in words at an OpenAI-compatible address, else as in a run."""
    assert config.judge is not None
    adapters = context.adapters
    if adapters.completer is None and config.openai_base_url is not None:
        return CompleterPreferenceModel(CompletedBy(_at_address(context, config.openai_base_url, config.judge)))

    async def sampler_of(name: str) -> SamplingClient:
        assert service is not None
        with service_errors("opening the judge"):
            return await alg.open_sampler(service, name, context.registry)

    return await alg.open_judge(config, SecondModels(sampler_of, adapters.completer), adapters, context.run_folders)


@alg.stage(doing="asking the model")
async def ask(
    context: alg.RunContext,
    config: EvalSettings,
    loaded: Sequence[LoadedBenchmark],
    answerer: Answerer,
    log: AttemptFiles,
) -> None:
    """Have every item answered and graded that was not before; asked to stop, it finishes those that are asked."""
    options = AnswerOptions(
        num_samples=config.num_samples,
        max_tokens=config.max_tokens,
        temperature=config.temperature,
        seed=config.seed,
        system_prompt=config.system_prompt,
        max_concurrent=config.max_concurrent_requests,
    )
    with context.interrupt.deferred(), service_errors("answering a benchmark"):
        for each in loaded:
            done = sum((each.name, place) in log.grades for place in each.items)
            with context.telemetry.span(each.name):
                await ask_benchmark(
                    each,
                    answerer,
                    options,
                    log,
                    on_done=ItemProgress(context.telemetry, each.name, len(each.items), done),
                    is_stopped=lambda: context.interrupt.is_requested,
                )


@alg.stage(doing="scoring the answers")
async def score(
    context: alg.RunContext, loaded: Sequence[LoadedBenchmark], log: AttemptFiles, inspected: list[InspectResult]
) -> tuple[dict[str, Mapping[str, Estimate]], dict[str, Any]]:
    """Compute the scores of the attempts."""
    figures: dict[str, Mapping[str, Estimate]] = {
        each.name: benchmark_figures(each, log.attempts(each.name)) for each in loaded
    }
    figures |= {result.name: result.figures for result in inspected}
    results: dict[str, Any] = {}
    for name, estimates in figures.items():
        results |= alg.record_metrics(context.telemetry, 0, as_metrics(name, estimates))
        _warn_of_failures(name, log.attempts(name))
    context.telemetry.metrics(0, results)
    return figures, results


def _warn_of_failures(name: str, attempts: Sequence[Attempt]) -> None:
    answers = [answer for attempt in attempts for answer in attempt.answers]
    reasons = Counter(answer.error for answer in answers if answer.error is not None)
    for reason, _ in reasons.most_common(1):
        failed = f"{reasons.total():,} of {len(answers):,} answers failed"
        logger.warning("%s: %s, most of them because of this: %s", name, failed, reason[:_REASON_CHARACTERS])


@alg.stage(doing="writing the pages of answers")
async def write_transcripts(
    config: EvalSettings,
    loaded: Sequence[LoadedBenchmark],
    log: AttemptFiles,
    folder: RunFolder,
    inspected: list[InspectResult],
) -> None:
    """A page for each benchmark and task of what was asked and answered, by outcome."""
    model = config.weights or config.model_name
    with file_errors(folder.evaluations):
        folder.evaluations.mkdir(exist_ok=True)
    for each in loaded:
        page = transcripts_page(each.items, log.attempts(each.name), title=f"{each.name}: {model}")
        write_whole(page_of(folder, each.name), page)
    for result in inspected:
        title, own_log = f"{result.name}: {model}", f"{INSPECT_FOLDER}/{result.log.name}"
        page = transcripts_page(result.items, result.attempts, title=title, log=own_log)
        write_whole(page_of(folder, result.name), page)
