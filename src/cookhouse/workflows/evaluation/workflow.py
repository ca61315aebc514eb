"""An evaluation: benchmarks are read, asked and graded, and what was said can be read by what came of it."""

import asyncio
import logging
import os
from collections import Counter
from collections.abc import Sequence

from cookhouse.algorithms.base.evaluation import record_metrics
from cookhouse.algorithms.base.judge import judges_asked, open_judge
from cookhouse.algorithms.base.second_model import open_sampler, sampler_at, sampler_place
from cookhouse.algorithms.stages.body import Stages
from cookhouse.algorithms.stages.sinks import start_sinks
from cookhouse.algorithms.stages.stage import Stage, stage
from cookhouse.algorithms.stages.workflow import Workflow
from cookhouse.data import build_renderer
from cookhouse.envs import SecondModels
from cookhouse.errors import InputError
from cookhouse.evals import (
    Answerer,
    AnswerOptions,
    Attempt,
    Benchmark,
    CompleterAnswerer,
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
from cookhouse.evals.benchmarks.open_ai import CompletedBy
from cookhouse.evals.inspect import require_inspect
from cookhouse.files import file_errors, write_whole
from cookhouse.grading import CompleterPreferenceModel, PreferenceModel
from cookhouse.models.catalog import context_tokens
from cookhouse.naming import names_in
from cookhouse.report import transcripts_page
from cookhouse.runs import RunFolder, open_folder
from cookhouse.runs.names import INSPECT_FOLDER, RUNS_FOLDER
from cookhouse.settings import EvalSettings
from cookhouse.telemetry import JsonlSink, LogSink, TraceSink, events
from cookhouse.training import SamplingClient, Waiting, service_errors
from cookhouse.training.clients.session import close_service
from cookhouse.workflows.evaluation.attempt_files import AttemptFiles, write_questions
from cookhouse.workflows.evaluation.inspect_stages import (
    has_inspect_tasks,
    load_inspect_tasks,
    page_of,
    run_inspect_tasks,
    write_inspected,
)
from cookhouse.workflows.evaluation.state import EvaluationState, ItemProgress
from cookhouse.workflows.evaluation.summary import evaluation_facts, evaluation_result

logger = logging.getLogger(__name__)

_REASON_CHARACTERS = 300


def evaluation_workflow(config: EvalSettings) -> Workflow[EvaluationState]:
    """The stages of an evaluation."""
    benchmarks = evaluated_benchmarks(config)
    sources = sources_of_benchmarks(benchmarks, config.benchmark_data)
    inspects = has_inspect_tasks(config)
    needs = ("service",) if config.openai_base_url is None else ()
    opening = Stage(
        name="open_model",
        doing="loading the model",
        run=_open_model,
        reads=("config", "benchmarks", "renderer", "folder"),
        writes=("answerer", "service"),
        needs=needs,
        uses=("completer", "registry"),
    )
    return Workflow(
        name="evaluation",
        state_class=EvaluationState,
        start=lambda context: EvaluationState(context=context, config=config, benchmarks=benchmarks, sources=sources),
        setup=(load_benchmarks, *([load_inspect_tasks] if inspects else []), init_tokenizer, init_folder),
        body=Stages(parts=(opening, ask, *([run_inspect_tasks] if inspects else []), score)),
        final=(write_transcripts,),
        cleanup=cleanup,
        result=evaluation_result,
        facts=evaluation_facts,
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


@stage(
    doing="reading the benchmarks", reads=("config", "benchmarks", "sources"), writes=("loaded",), uses=("datasets",)
)
async def load_benchmarks(state: EvaluationState) -> None:
    """Read the items of every benchmark, and see that their answers can be graded here."""
    # The run directory's own sources where it has them: they are of its store.
    sources = {**state.sources, **state.context.folder.data}
    state.loaded = [
        await asyncio.to_thread(load_benchmark, each, sources[each.name], state.config.limit)
        for each in state.benchmarks
    ]
    for each in state.benchmarks:
        if each.prepare is not None:
            await each.prepare()
    judges_asked(state.config, state.benchmarks)  # refuses one that is missing


@stage(doing="loading the tokenizer", reads=("config",), writes=("renderer",))
async def init_tokenizer(state: EvaluationState) -> None:
    """Load the tokenizer, and the renderer over it, where the service is to answer."""
    config = state.config
    if state.context.adapters.completer is None and config.openai_base_url is None:
        state.renderer = await asyncio.to_thread(
            build_renderer, config.model_name, config.renderer_name, force=config.force_renderer
        )


@stage(
    doing="opening the run directory",
    reads=("config", "sources", "loaded", "tasks"),
    writes=("folder", "log"),
    leaves_files=True,
)
async def init_folder(state: EvaluationState) -> None:
    """Open the run directory, with what was answered there before."""
    context = state.context
    folder = await asyncio.to_thread(open_folder, context.folder, context.choice)
    state.folder = folder
    state.closing.push_async_callback(_close_folder, state, folder)
    with file_errors(folder.path):
        for sink in (JsonlSink(folder.metrics), TraceSink(folder.trace), LogSink(), folder.run_json):
            state.telemetry.add(sink)
    await start_sinks(context, folder.path)
    state.log = await asyncio.to_thread(AttemptFiles, folder.path)
    await asyncio.to_thread(write_questions, folder.path, state.loaded)
    state.telemetry.event(
        events.RUN_START,
        step=0,
        recipe=context.recipe,
        model=state.config.weights or state.config.model_name,
        folder=str(folder.path),
    )
    for name, text in evaluation_facts(state).items():
        if name in {*(loaded.name for loaded in state.loaded), *(task.name for task in state.tasks)}:
            state.telemetry.event(events.DATA_COUNTS, text=f"{name}: {text}")


async def _open_model(state: EvaluationState) -> None:
    """Open what answers: a completer that the adapters bring, an OpenAI-compatible address, or the service."""
    config, context = state.config, state.context
    if context.adapters.completer is not None:
        state.answerer = CompleterAnswerer(context.adapters.completer(config.weights or config.model_name))
    elif config.openai_base_url is not None:
        state.answerer = _at_address(state, config.openai_base_url, config.weights or config.model_name)
    else:
        state.answerer = await _service_answerer(state)
    if judges := judges_asked(config, state.benchmarks):
        model = await _open_judge(state)
        for judge in judges:
            judge.model = model
    await asyncio.to_thread(state.folder.begin)


def _at_address(state: EvaluationState, url: str, model: str) -> OpenAIAnswerer:
    answerer = OpenAIAnswerer(url, model, api_key=os.environ.get("OPENAI_API_KEY") or None)
    state.closing.push_async_callback(answerer.aclose)
    return answerer


async def _open_judge(state: EvaluationState) -> PreferenceModel:
    """The judge: asked in words at an OpenAI-compatible address, else as in a run."""
    config, adapters = state.config, state.context.adapters
    assert config.judge is not None
    if adapters.completer is None and config.openai_base_url is not None:
        return CompleterPreferenceModel(CompletedBy(_at_address(state, config.openai_base_url, config.judge)))

    async def sampler_of(name: str) -> SamplingClient:
        with service_errors("opening the judge"):
            return await open_sampler(state.service, name, adapters.registry)

    models = SecondModels(sampler_of, adapters.completer)
    return await open_judge(config, models, adapters, (state.context.folder.path.parent, RUNS_FOLDER))


async def _service_answerer(state: EvaluationState) -> Answerer:
    config, context = state.config, state.context
    assert state.renderer is not None
    place = sampler_place(config.weights or config.model_name, context.adapters.registry)
    waiting = Waiting(state.telemetry)
    with service_errors("opening a session"):
        service = state.service = await waiting.wait(context.connect(), "the service to be ready")
        state.closing.push_async_callback(lambda: close_service(service, state.status))
        client = await waiting.wait(sampler_at(service, place), "the model to be loaded")
        limit = await service.context_tokens(config.model_name)
    limits = [tokens for tokens in (limit, context_tokens(config.model_name)) if tokens is not None]
    return SamplingAnswerer(client, state.renderer, context_tokens=min(limits, default=None))


@stage(doing="asking the model", reads=("config", "loaded", "answerer", "log"), writes=())
async def ask(state: EvaluationState) -> None:
    """Have every item answered and graded that was not before; asked to stop, it finishes those that are asked."""
    config = state.config
    options = AnswerOptions(
        num_samples=config.num_samples,
        max_tokens=config.max_tokens,
        temperature=config.temperature,
        seed=config.seed,
        system_prompt=config.system_prompt,
        max_concurrent=config.max_concurrent_requests,
    )
    with state.interrupt.deferred(), service_errors("answering a benchmark"):
        for loaded in state.loaded:
            with state.telemetry.span(loaded.name):
                await ask_benchmark(
                    loaded,
                    state.answerer,
                    options,
                    state.log,
                    on_done=_progress(state, loaded),
                    is_stopped=lambda: state.interrupt.is_requested,
                )


def _progress(state: EvaluationState, loaded: LoadedBenchmark) -> ItemProgress:
    done = sum((loaded.name, place) in state.log.grades for place in loaded.items)
    return ItemProgress(state.telemetry, loaded.name, len(loaded.items), done)


@stage(doing="scoring the answers", reads=("loaded", "log", "inspected"), writes=("figures", "eval_results"))
async def score(state: EvaluationState) -> None:
    """Compute the scores of the attempts."""
    state.figures = {loaded.name: benchmark_figures(loaded, state.log.attempts(loaded.name)) for loaded in state.loaded}
    state.figures |= {result.name: result.figures for result in state.inspected}
    for name, figures in state.figures.items():
        state.eval_results |= record_metrics(state.telemetry, 0, as_metrics(name, figures))
        _warn_of_failures(name, state.log.attempts(name))
    state.telemetry.metrics(0, state.eval_results)


def _warn_of_failures(name: str, attempts: Sequence[Attempt]) -> None:
    answers = [answer for attempt in attempts for answer in attempt.answers]
    reasons = Counter(answer.error for answer in answers if answer.error is not None)
    for reason, _ in reasons.most_common(1):
        failed = f"{reasons.total():,} of {len(answers):,} answers failed"
        logger.warning("%s: %s, most of them because of this: %s", name, failed, reason[:_REASON_CHARACTERS])


@stage(doing="writing the pages of answers", reads=("config", "loaded", "log", "folder", "inspected"), writes=())
async def write_transcripts(state: EvaluationState) -> None:
    """A page for each benchmark and task of what was asked and answered, by outcome."""
    with file_errors(state.folder.evaluations):
        state.folder.evaluations.mkdir(exist_ok=True)
    for loaded in state.loaded:
        title = f"{loaded.name}: {state.config.weights or state.config.model_name}"
        page = transcripts_page(loaded.items, state.log.attempts(loaded.name), title=title)
        write_whole(page_of(state.folder, loaded.name), page)
    write_inspected(state)


@stage(doing="ending the session")
async def cleanup(state: EvaluationState) -> None:
    """End the session and stop logging; a folder in which nothing was answered goes."""
    await state.closing.aclose()


async def _close_folder(state: EvaluationState, folder: RunFolder) -> None:
    state.telemetry.event(events.RUN_END, status=state.status)
    await asyncio.to_thread(folder.end, state.status, state.error)
    folder.close()
    has_answers = (hasattr(state, "log") and bool(state.log.answers)) or (folder.path / INSPECT_FOLDER).exists()
    if not has_answers and (isinstance(state.error, InputError) or state.interrupt.is_forced):
        folder.discard()
