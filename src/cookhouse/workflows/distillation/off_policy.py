"""Off-policy distillation: a teacher answers prompts, and the student learns its answers; and prompt distillation,
where the teacher has a prompt that the student does not see.
"""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import cast

import chz

from cookhouse.algorithms.base.batch_size import batches_of, fit_batch
from cookhouse.algorithms.base.evaluation import init_evaluators, scheduled_evaluators
from cookhouse.algorithms.base.facts import settings_notes
from cookhouse.algorithms.base.loop import BATCHED, batch_source, log_slot, objective_slot
from cookhouse.algorithms.base.rows import kept_tokens, recorded_sources, sources_of
from cookhouse.algorithms.base.run import open_run, set_steps
from cookhouse.algorithms.base.tokenizer import format_notes, load_renderer
from cookhouse.algorithms.base.workflow import training_workflow
from cookhouse.algorithms.stages.stage import SlotStage, stage
from cookhouse.algorithms.stages.workflow import Workflow
from cookhouse.data.rows.marks import mark_remarks
from cookhouse.files import file_errors
from cookhouse.models.catalog import context_tokens
from cookhouse.models.tokenizers import get_tokenizer
from cookhouse.registry import Descent
from cookhouse.runs.names import RUNS_FOLDER, TEACHER_FILE, TEACHER_SAMPLES_FILE
from cookhouse.sampling_client import TopKClient
from cookhouse.settings import OffPolicyDistillationSettings
from cookhouse.telemetry import events
from cookhouse.training import BatchSource, Cadence, ScheduledEvaluation
from cookhouse.weights.names import find_weights
from cookhouse.workflows.distillation.assembler import AnswerAssembler, QuestionBatch, QuestionDataset, TeacherTargets
from cookhouse.workflows.distillation.evaluation import (
    StudentEvaluation,
    TeacherRecord,
    expected_answers,
    read_teacher_record,
    write_teacher_record,
)
from cookhouse.workflows.distillation.objective import taught_objective
from cookhouse.workflows.distillation.questions import (
    questions_of,
    read_rows,
    read_teacher_prompt,
)
from cookhouse.workflows.distillation.samples import AnswerExtractor, TeacherQuestion, TeacherSampler
from cookhouse.workflows.distillation.state import OffPolicyState
from cookhouse.workflows.distillation.summary import distillation_result, off_policy_facts, off_policy_figures
from cookhouse.workflows.distillation.teacher_service import (
    Student,
    TeacherService,
    check_teacher,
    connect_to_teacher,
)


@stage(
    doing="reading the prompts",
    reads=("config", "bundled"),
    writes=("teacher_prompt", "rows", "notes"),
    uses=("datasets",),
)
async def load_dataset(state: OffPolicyState) -> None:
    """Read the prompts, and the teacher's own."""
    state.teacher_prompt = read_teacher_prompt(state.config.teacher_prompt)
    sources = recorded_sources(state.config, state.bundled, state.context.folder.data)
    state.rows = await asyncio.to_thread(read_rows, state.config, sources, state.teacher_prompt)
    state.notes += state.rows.notes


@stage(
    doing="loading the tokenizer",
    reads=("config", "notes"),
    writes=("renderer", "teacher_renderer", "reader", "notes"),
    uses=("registry",),
)
async def init_tokenizer(state: OffPolicyState) -> None:
    """Load the tokenizer, and both renderers over it; and see that the teacher goes with the student."""
    config = state.config
    state.notes += format_notes(config)
    state.renderer = await load_renderer(config, config.renderer_name)
    other = config.teacher_renderer
    state.teacher_renderer = state.renderer if other is None else await load_renderer(config, other)
    state.reader = AnswerExtractor(state.teacher_renderer, config.answer_pattern)
    await asyncio.to_thread(_check_teacher, state)


def _check_teacher(state: OffPolicyState) -> None:
    connect_to_teacher(state.context.adapters.teacher, state.config.teacher_base_url)
    among = (state.context.folder.path.parent, RUNS_FOLDER)
    origin = find_weights(state.teacher_name, state.context.adapters.registry).origin(among)
    check_teacher(state.teacher_name, origin, _student(state.config))


def _student(config: OffPolicyDistillationSettings) -> Student:
    return Student(
        model_name=config.model_name,
        renderer_name=config.teacher_renderer or config.renderer_name,
        force_renderer=config.force_renderer,
    )


@stage(
    doing="tokenizing the prompts",
    reads=("config", "rows", "renderer", "teacher_renderer", "teacher_prompt"),
    writes=("dataset", "held_out", "objective", "context_tokens", "notes", "total_steps", "steps_per_epoch", "adam"),
)
async def build_distillation_dataset(state: OffPolicyState) -> None:
    """Tokenize the prompts, and know from them how many steps there will be."""
    config = state.config
    state.notes += await asyncio.to_thread(settings_notes, config)
    state.context_tokens = await asyncio.to_thread(context_tokens, config.model_name)
    write = partial(questions_of, renderer=state.renderer, teacher=state.teacher_renderer, prompt=state.teacher_prompt)
    state.notes += mark_remarks(state.rows.train, state.renderer.encoder, what="prompts")
    train = _fitting(state, await asyncio.to_thread(write, state.rows.train))
    batch_size = fit_batch(state, batches_of(len(train)), f"{len(train):,} prompts")
    state.dataset = QuestionDataset(train, batch_size=batch_size, seed=config.seed)
    state.held_out = await asyncio.to_thread(write, state.rows.test)
    state.objective = taught_objective(has_teacher_logprobs=config.temperature == 1.0)
    set_steps(state, len(state.dataset))
    for pieces in preview(state):
        state.telemetry.event(events.DATA_PREVIEW, pieces=json.dumps(pieces))


def _fitting(state: OffPolicyState, questions: Sequence[TeacherQuestion]) -> list[TeacherQuestion]:
    """Questions that leave room for an answer."""
    limit = kept_tokens(state.config, state.context_tokens)
    kept = [each for each in questions if max(len(each.student_tokens), len(each.teacher_tokens)) < limit]
    if len(kept) < len(questions):
        state.notes.append(
            f"{len(questions) - len(kept):,} of {len(questions):,} prompts leave no room for an answer within "
            f"{limit:,} tokens, and are left out"
        )
    return kept


def preview(state: OffPolicyState) -> list[list[tuple[str, bool]]]:
    """The first prompt as the teacher and as the student see it; nothing of either is trained on."""
    decode = get_tokenizer(state.config.model_name).decode
    first = state.dataset.questions[0]
    seen = [first.teacher_tokens, *([] if first.teacher_tokens == first.student_tokens else [first.student_tokens])]
    return [[(str(decode(list(tokens))), False)] for tokens in seen]


@stage(
    doing="loading the model",
    reads=("config", "notes", "total_steps", "evaluators"),
    writes=("folder", "checkpoints", "cursor", "session", "evaluations"),
    needs=("service",),
)
async def init_session(state: OffPolicyState) -> None:
    """Open the run directory and then the session: fresh, from weights, or where a checkpoint left off."""
    await open_run(state)
    state.evaluations += scheduled_evaluators(state.evaluators, state.telemetry, state.folder.evaluations)


@stage(
    doing="opening the teacher, asking it what is held out",
    reads=(
        *("config", "rows", "teacher_prompt", "renderer", "teacher_renderer", "reader", "held_out"),
        *("context_tokens", "session", "folder"),
    ),
    writes=("teacher_service", "teacher", "teacher_results", "evaluations"),
    needs=("service",),
    uses=("teacher",),
)
async def init_teacher(state: OffPolicyState) -> None:
    """Open the teacher, and have it answer the held-out prompts, once in a run."""
    adapters, config = state.context.adapters, state.config
    other = connect_to_teacher(adapters.teacher, config.teacher_base_url)
    state.teacher_service = TeacherService(state.session.service, other)
    state.closing.push_async_callback(state.teacher_service.aclose)
    state.teacher = await state.teacher_service.open(state.teacher_name, _student(config), adapters.registry)
    if not state.held_out:
        return
    path = state.folder.path / TEACHER_FILE
    kept = read_teacher_record(path) if state.folder.resume is not None else None
    if kept is None:
        with state.telemetry.span("evaluate_teacher"):
            kept = await _taught(state)
        write_teacher_record(path, kept)
    state.teacher_results = kept
    evaluation = StudentEvaluation(
        kept,
        state.renderer,
        max_tokens=config.eval_max_tokens,
        context_tokens=state.context_tokens,
        telemetry=state.telemetry,
        keep=state.folder.write_answers,
    )
    cadence = Cadence(every=config.eval_every, at_start=config.eval_at_start)
    state.evaluations.insert(0, ScheduledEvaluation(name="held out", evaluation=evaluation, cadence=cadence))


async def _taught(state: OffPolicyState) -> TeacherRecord:
    assert state.teacher is not None
    greedy = chz.replace(state.config, temperature=0.0, samples_per_prompt=1)
    ask = TeacherSampler(
        state.teacher,
        state.reader,
        greedy,
        stop=state.teacher_renderer.get_stop_sequences(),
        seed=state.config.seed,
        context_tokens=state.context_tokens,
    )
    answers = [said for [said] in await ask(state.held_out, 0)]
    # What is distilled is what the teacher does with its prompt, whatever the data say.
    rows = state.rows.test if state.teacher_prompt is None else [replace(row, answer=None) for row in state.rows.test]
    return expected_answers(rows, answers, state.teacher_renderer)


@stage(doing="closing the teacher", reads=("teacher_service",), writes=("teacher",))
async def cleanup_teacher(state: OffPolicyState) -> None:
    """Free what the teacher holds: its client, and the session with another service."""
    state.teacher = None
    await state.teacher_service.aclose()


def example_tokens(config: OffPolicyDistillationSettings, context_tokens: int | None) -> int:
    """Tokens of an example at most."""
    # Who asks for the most likely tokens of a text samples a token behind it, which has to fit the context, too.
    if config.teacher_top_k and context_tokens is not None:
        context_tokens -= 1
    return kept_tokens(config, context_tokens)


def _source(state: OffPolicyState) -> BatchSource[QuestionBatch, None]:
    config, client = state.config, state.teacher
    assert client is not None
    cache = state.folder.path / TEACHER_SAMPLES_FILE if config.teacher_samples == "cached" else None
    if cache is not None and state.folder.resume is None:
        with file_errors(cache):
            cache.unlink(missing_ok=True)
    ask = TeacherSampler(
        client,
        state.reader,
        config,
        stop=state.teacher_renderer.get_stop_sequences(),
        seed=config.seed,
        context_tokens=state.context_tokens,
        cache=cache,
    )
    assemble = AnswerAssembler(
        ask,
        state.renderer,
        state.telemetry,
        max_length=example_tokens(config, state.context_tokens),
        is_verbatim=state.is_verbatim,
        targets=None
        if not config.teacher_top_k
        else TeacherTargets(cast("TopKClient", client), state.teacher_name, config.teacher_top_k),
    )
    return batch_source(state, assemble)


def off_policy_workflow(config: OffPolicyDistillationSettings, *, bundled: str) -> Workflow[OffPolicyState]:
    """The stages of a run that learns what its teacher says; `bundled` is the folder of bundled rows."""
    return training_workflow(
        name="off_policy_distillation",
        state_class=OffPolicyState,
        start=lambda context: OffPolicyState(context=context, config=config, bundled=bundled),
        setup=(load_dataset, init_tokenizer, build_distillation_dataset, init_evaluators, init_session, init_teacher),
        get_work=SlotStage(
            name="get_distillation_batch",
            make=_source,
            reads=("config", "renderer", "teacher_renderer", "reader", "teacher", "context_tokens", "folder", *BATCHED),
            parts=("teacher_inference", "build_distill_datums"),
        ),
        forward_backward=objective_slot("distillation_forward_backward"),
        log=log_slot("log_distillation_metrics", event=events.DISTILLATION_STEP),
        final=(cleanup_teacher,),
        descent=Descent.DISTILLED_FROM,
        result=partial(distillation_result, off_policy_figures),
        facts=off_policy_facts,
        previews=preview,
        data_files=sources_of(config, bundled),
    )
