"""Off-policy distillation: a teacher answers prompts, and the student learns its answers; and prompt distillation,
where the teacher has a prompt that the student does not see.

Rows become questions (`questions`), the teacher's samples (`samples`) datums, whose loss is cross-entropy (`answers`).
"""

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import cast

import chz

from cookhouse import algorithms as alg
from cookhouse.chat import Renderer
from cookhouse.data import count_items, mark_remarks
from cookhouse.files import file_errors
from cookhouse.models.catalog import context_tokens
from cookhouse.registry import Descent
from cookhouse.runs import Figure, Preview
from cookhouse.runs.names import TEACHER_SAMPLES_FILE
from cookhouse.sampling_client import SamplingClient, TopKClient
from cookhouse.settings import OffPolicyDistillationSettings
from cookhouse.telemetry import ResultNote, events, keys
from cookhouse.workflows.distillation.answers import FORWARD_KL, AnswerAssembler, TeacherTargets, taught_objective
from cookhouse.workflows.distillation.evaluation import (
    StudentEvaluation,
    TaughtState,
    TeacherRecord,
    expected_answers,
    kept_record,
)
from cookhouse.workflows.distillation.questions import (
    QuestionBatch,
    QuestionDataset,
    QuestionRows,
    Questions,
    preview,
    questions_of,
    read_rows,
)
from cookhouse.workflows.distillation.samples import DROPPED, SAMPLES, AnswerExtractor, TeacherSampler
from cookhouse.workflows.distillation.teachers import TeacherService, check_places, cleanup_teacher, teacher_service


@dataclass(kw_only=True)
class OffPolicyState(TaughtState):
    """State that the stages of a run that learns a teacher's answers share."""

    config: OffPolicyDistillationSettings
    bundled: str
    """Folder of the bundled rows."""
    rows: QuestionRows = field(init=False)
    reader: AnswerExtractor = field(init=False)
    questions: Questions = field(init=False)
    objective: alg.Objective[None] = field(init=False)
    teacher: SamplingClient = field(init=False)

    def data_facts(self) -> Mapping[str, str]:
        config, asked, prompt = self.config, self.questions.train.questions, self.rows.teacher_prompt
        longest = max(len(each.teacher_tokens) for each in asked)
        return {
            "teacher": teacher_name(config),
            "teacher is told": "as the student is" if prompt is None else f"{len(prompt.text):,} characters more",
            "prompts": f"{len(asked):,} to train on, {len(self.questions.held_out):,} held out; "
            f"{config.samples_per_prompt} answers to each, {config.teacher_samples}",
            "longest prompt": f"{longest:,} tokens, of the teacher's; answers of at most {config.max_tokens:,} more",
            "context": alg.context_fact(self.questions.context_tokens),
            "learned": f"the {config.teacher_top_k} most likely tokens"
            if config.teacher_top_k
            else "what the teacher says",
        }

    def previews(self) -> Sequence[Preview]:
        return preview(self.questions, self.config.model_name)

    def figures(self, first: alg.Row, last: alg.Row, after: alg.Row) -> Sequence[Figure]:
        """Held-out answers that are as expected and as the teacher's, loss, the divergence from the teacher, and how
        many of its answers were of no use.
        """
        before, now = (row[DROPPED] / row[SAMPLES] if row.get(SAMPLES) else None for row in (first, last))
        label = "teacher's answers that were dropped, first and last"
        dropped = Figure(name=DROPPED, label=label, before=before, after=now, is_share=True)
        return [
            *alg.held_out_figures(_HELD_OUT, first, after),
            alg.trained_figure(keys.TRAIN_LOSS, "training loss", first, last),
            alg.trained_figure(FORWARD_KL, "divergence from the teacher (nats per token)", first, last),
            *([dropped] if before or now else []),
            *self.teacher_figures(first, after),
        ]


_HELD_OUT = (
    (keys.TEST_EXACT_MATCH, "held-out exact match", True),
    ("test/agreement", "held-out answers that are the teacher's", True),
)


def teacher_name(config: OffPolicyDistillationSettings) -> str:
    """The weights that teach: those that the run begins with where nobody else is named."""
    return config.teacher_model or config.load_checkpoint_path or config.model_name


def example_tokens(config: OffPolicyDistillationSettings, context_tokens: int | None) -> int:
    """Tokens of an example at most."""
    # Who asks for the most likely tokens of a text samples a token behind it, which has to fit the context, too.
    if config.teacher_top_k and context_tokens is not None:
        context_tokens -= 1
    return alg.kept_tokens(config, context_tokens)


@alg.stage(doing="reading the prompts", uses=("datasets",))
async def load_dataset(context: alg.RunContext, config: OffPolicyDistillationSettings, bundled: str) -> QuestionRows:
    """Read the prompts, and the teacher's own."""
    rows = await asyncio.to_thread(read_rows, config, alg.recorded_sources(config, bundled, context.folder.data))
    context.notes += rows.notes
    return rows


@alg.stage(doing="loading the tokenizer", uses=("registry",))
async def init_tokenizer(
    context: alg.RunContext, config: OffPolicyDistillationSettings
) -> tuple[Renderer, AnswerExtractor]:
    """Load the tokenizer, and both renderers over it; and see that the teacher goes with the student."""
    context.notes += alg.format_notes(config)
    renderer, other = await alg.load_renderer(config, config.renderer_name), config.teacher_renderer
    reader = AnswerExtractor(
        renderer if other is None else await alg.load_renderer(config, other), config.answer_pattern
    )
    await check_places(context, config, [teacher_name(config)])
    return renderer, reader


@alg.stage(doing="tokenizing the prompts")
async def build_distillation_dataset(
    context: alg.RunContext,
    config: OffPolicyDistillationSettings,
    rows: QuestionRows,
    renderer: Renderer,
    reader: AnswerExtractor,
) -> tuple[Questions, alg.Objective[None], alg.Steps, OffPolicyDistillationSettings]:
    """Tokenize the prompts, and know from them how many steps there will be."""
    notes = context.notes
    notes += await asyncio.to_thread(alg.settings_notes, config)
    limit = await asyncio.to_thread(context_tokens, config.model_name)
    write = partial(questions_of, student=renderer, teacher=reader.renderer, prompt=rows.teacher_prompt)
    notes += mark_remarks(rows.train, renderer.encoder, what="prompts")
    written, room = await asyncio.to_thread(write, rows.train), alg.kept_tokens(config, limit)
    fitting = [each for each in written if max(len(each.student_tokens), len(each.teacher_tokens)) < room]
    if len(fitting) < len(written):
        notes.append(
            ResultNote(
                f"{len(written) - len(fitting):,} of {len(written):,} prompts leave no room for an answer within "
                f"{room:,} tokens, and are left out"
            )
        )
    config = alg.fit_batch(context, config, alg.batches_of(len(fitting)), f"{len(fitting):,} prompts")
    train = QuestionDataset(fitting, batch_size=config.batch_size, seed=config.seed)
    held_out = await asyncio.to_thread(write, rows.test)
    questions = Questions(train=train, held_out=held_out, context_tokens=limit)
    steps = alg.planned_steps(context, config, len(train), partial(_expected_tokens, config, len(fitting)))
    for pieces in preview(questions, config.model_name):
        context.telemetry.event(events.DATA_PREVIEW, pieces=json.dumps(pieces))
    return questions, taught_objective(has_teacher_logprobs=config.temperature == 1.0), steps, config


def _expected_tokens(
    config: OffPolicyDistillationSettings, num_questions: int, total_steps: int, steps_per_epoch: int
) -> alg.ExpectedTokens:
    size, answers, length = config.batch_size, config.samples_per_prompt, config.max_tokens
    asked = count_items(num_questions, batch_size=size, total_steps=total_steps, steps_per_epoch=steps_per_epoch)
    return alg.ExpectedTokens(
        tokens={"sampled_tokens": asked * answers * length},
        degree="at most",
        remark=f"{alg.in_steps(asked, total_steps, size)} prompts × {answers:,} answers × {length:,} tokens, by the "
        "teacher",
        on_top="prompts, and training on these with what was sampled; evaluations",
    )


@alg.stage(doing="loading the model", needs=("service",))
async def init_session(
    context: alg.RunContext,
    config: OffPolicyDistillationSettings,
    steps: alg.Steps,
    evaluators: Sequence[alg.NamedEvaluator],
) -> tuple[alg.OpenedRun, list[alg.ScheduledEvaluation]]:
    """Open the run directory and then the session: fresh, from weights, or where a checkpoint left off."""
    opened = await alg.open_run(context, config, steps, evaluators)
    return opened, alg.scheduled(context, config, opened, evaluators)


@alg.stage(doing="opening the teacher, asking it what is held out", needs=("service",), uses=("teacher",))
async def init_teacher(
    context: alg.RunContext,
    config: OffPolicyDistillationSettings,
    renderer: Renderer,
    reader: AnswerExtractor,
    questions: Questions,
    opened: alg.OpenedRun,
    evaluations: list[alg.ScheduledEvaluation],
) -> tuple[TeacherService, SamplingClient, TeacherRecord]:
    """Open the teacher, and have it answer the held-out prompts, once in a run."""
    service = teacher_service(context, config, opened)
    teacher = await service.open(teacher_name(config))
    if not questions.held_out:
        return service, teacher, TeacherRecord()

    async def taught() -> TeacherRecord:
        greedy = chz.replace(config, temperature=0.0, samples_per_prompt=1)
        ask = TeacherSampler(teacher, reader, greedy, context_tokens=questions.context_tokens)
        answers = [said for [said] in await ask(questions.held_out, 0)]
        return expected_answers([each.row for each in questions.held_out], answers, reader.renderer)

    record = await kept_record(context, opened, taught)
    evaluation = StudentEvaluation(
        record,
        renderer,
        max_tokens=config.eval_max_tokens,
        context_tokens=questions.context_tokens,
        telemetry=context.telemetry,
        keep=opened.folder.write_answers,
    )
    cadence = alg.Cadence(every=config.eval_every, at_start=config.eval_at_start)
    evaluations.insert(0, alg.ScheduledEvaluation(name="held out", evaluation=evaluation, cadence=cadence))
    return service, teacher, record


@alg.stage(parts=("teacher_inference", "build_distill_datums"))
def get_distillation_batch(
    context: alg.RunContext,
    config: OffPolicyDistillationSettings,
    renderer: Renderer,
    reader: AnswerExtractor,
    questions: Questions,
    steps: alg.Steps,
    opened: alg.OpenedRun,
    teacher: SamplingClient,
) -> alg.BatchSource[QuestionBatch, None]:
    """The teacher's answers as batches, one prepared ahead; what is kept of them, from the start of the run."""
    cache = opened.folder.path / TEACHER_SAMPLES_FILE if config.teacher_samples == "cached" else None
    if cache is not None and opened.folder.resume is None:
        with file_errors(cache):
            cache.unlink(missing_ok=True)
    limit, top_k = questions.context_tokens, config.teacher_top_k
    is_verbatim = config.teacher_renderer is None and config.answer_pattern is None
    assemble = AnswerAssembler(
        TeacherSampler(teacher, reader, config, context_tokens=limit, cache=cache),
        context.telemetry,
        max_length=example_tokens(config, limit),
        renderer=None if is_verbatim else renderer,
        targets=TeacherTargets(cast("TopKClient", teacher), teacher_name(config), top_k) if top_k else None,
    )
    return alg.batch_source(questions.train, assemble, steps, opened)


def off_policy_workflow(config: OffPolicyDistillationSettings, *, bundled: str) -> alg.Workflow[OffPolicyState]:
    """The stages of a run that learns what its teacher says; `bundled` is the folder of bundled rows."""
    return alg.training_workflow(
        name="off_policy_distillation",
        state_class=OffPolicyState,
        inputs={"config": config, "bundled": bundled},
        setup=(
            load_dataset,
            init_tokenizer,
            build_distillation_dataset,
            alg.init_evaluators,
            init_session,
            init_teacher,
        ),
        loop=alg.training_loop(
            get_work=get_distillation_batch,
            forward_backward=alg.objective_slot("distillation_forward_backward"),
            log=alg.log_slot("log_distillation_metrics", event=events.DISTILLATION_STEP),
        ),
        final=(cleanup_teacher,),
        descent=Descent.DISTILLED_FROM,
        data_files=alg.sources_of(config, bundled),
    )
