"""On-policy distillation: the student attempts problems, and teachers say of each token how likely they find it."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from cookhouse.algorithms.base.evaluation import init_evaluators
from cookhouse.algorithms.base.loop import keep_slot, objective_slot
from cookhouse.algorithms.base.tokenizer import init_tokenizer
from cookhouse.algorithms.base.workflow import training_workflow
from cookhouse.algorithms.rollouts.evaluation import attempt_all
from cookhouse.algorithms.rollouts.policy import PolicySampler
from cookhouse.algorithms.rollouts.rollouts import publish_slot, rollout_of
from cookhouse.algorithms.rollouts.source import RolloutSource
from cookhouse.algorithms.rollouts.trained_logprobs import TrainedLogprobs
from cookhouse.algorithms.stages.stage import SlotStage, stage
from cookhouse.algorithms.stages.workflow import Workflow
from cookhouse.data import DataSource, parse_weights
from cookhouse.envs import environment_tag
from cookhouse.errors import InputError
from cookhouse.naming import names_in
from cookhouse.registry import Descent
from cookhouse.rl import GroupSampler
from cookhouse.runs.names import RUNS_FOLDER, TEACHER_FILE
from cookhouse.settings import OnPolicyDistillationSettings
from cookhouse.telemetry import events
from cookhouse.training import FinishedStep
from cookhouse.weights.names import find_weights
from cookhouse.workflows.distillation.evaluation import TeacherRecord, read_teacher_record, write_teacher_record
from cookhouse.workflows.distillation.state import NamedTeacher, OnPolicyState
from cookhouse.workflows.distillation.summary import on_policy_facts, on_policy_result
from cookhouse.workflows.distillation.teacher_service import (
    Student,
    TeacherService,
    check_logprobs,
    check_teacher,
    connect_to_teacher,
)
from cookhouse.workflows.distillation.teachers import Teacher, TeacherAdvantages, Teachers
from cookhouse.workflows.reinforcement.state import Environments
from cookhouse.workflows.reinforcement.workflow import (
    build_env_group,
    init_session,
    post_kl_slot,
    rollout_assembler,
    rollout_log,
    rollout_source,
)

build_distillation_dataset = replace(build_env_group, name="build_distillation_dataset")


@stage(doing="looking up the teachers", reads=("config", "environment_names"), writes=("named",), uses=("registry",))
async def check_teachers(state: OnPolicyState) -> None:
    """See that every teacher is there, one for each environment or one for all, and goes with the student."""
    state.named = named_teachers(state.config, state.environment_names)
    connect_to_teacher(state.context.adapters.teacher, state.config.teacher_base_url)
    for teacher in state.named:
        await asyncio.to_thread(_check, state, teacher.name)


def _check(state: OnPolicyState, name: str) -> None:
    among = (state.context.folder.path.parent, RUNS_FOLDER)
    check_teacher(name, find_weights(name, state.context.adapters.registry).origin(among), student_of(state.config))


def student_of(config: OnPolicyDistillationSettings) -> Student:
    """Description of the student that teachers have to fit."""
    return Student(
        model_name=config.model_name, renderer_name=config.renderer_name, force_renderer=config.force_renderer
    )


def named_teachers(config: OnPolicyDistillationSettings, environments: Sequence[str]) -> list[NamedTeacher]:
    """The teachers of the settings: one, or as many as there are environments.

    Raises:
        InputError: there is none, or another number of them; or environments that groups cannot be told apart by.
    """
    names = names_in(config.teacher_model or "")
    if not names:
        raise InputError("teacher_model names no teacher; give a base model, a run, or a tinker:// path")
    coefs = parse_weights(config.teacher_coefs, names, "teacher_coefs") or [1.0] * len(names)
    if len(names) == 1:
        return [NamedTeacher(name=names[0], coef=coefs[0], tag=None)]
    if len(names) != len(environments):
        raise InputError(
            f"teacher_model names {len(names)} teachers, and env {len(environments)} environments; give one for each, "
            "or one for all"
        )
    tags = [environment_tag(each) for each in environments]
    if len(set(tags)) < len(tags):
        raise InputError(f"two of the environments are both called {', '.join(tags)}; call them differently")
    return [NamedTeacher(name=name, coef=coef, tag=tag) for name, coef, tag in zip(names, coefs, tags, strict=True)]


@stage(
    doing="opening the teacher, asking it what is held out",
    reads=("config", "named", "renderer", "context_tokens", "session", "test", "rollout_pages", "folder"),
    writes=("teacher_service", "teachers", "teacher_results"),
    needs=("service",),
    uses=("teacher",),
)
async def init_teacher(state: OnPolicyState) -> None:
    """Open the teachers, see that they give logprobs, and have them answer the held-out problems, once in a run."""
    adapters, config = state.context.adapters, state.config
    other = connect_to_teacher(adapters.teacher, config.teacher_base_url)
    state.teacher_service = TeacherService(state.session.service, other)
    state.closing.push_async_callback(state.teacher_service.aclose)
    opened: dict[str | None, Teacher] = {}
    probe = state.renderer.build_generation_prompt([{"role": "user", "content": "Hello"}])
    for each in state.named:
        client = await state.teacher_service.open(each.name, student_of(config), adapters.registry)
        await check_logprobs(each.name, client, probe)
        opened[each.tag] = Teacher(name=each.name, client=client, coef=each.coef)
    default = opened.pop(None, None)
    state.teachers = Teachers(by_tag={tag: one for tag, one in opened.items() if tag is not None}, default=default)
    if state.test and config.eval_teacher:
        state.teacher_results = await _teacher_results(state, state.folder.path / TEACHER_FILE)


async def _teacher_results(state: OnPolicyState, path: Path) -> TeacherRecord:
    if state.folder.resume is not None and (kept := read_teacher_record(path)) is not None:
        return kept
    with state.telemetry.span("evaluate_teacher"):
        groups, lost = await attempt_all(
            state.test,
            rollout_of(state),
            lambda builder: _sampler(state, builder.logging_tags()),
            max_concurrent=state.config.max_concurrent_groups,
        )
    if lost:
        text = (
            f"{len(lost)} of the {len(state.test)} held-out groups failed with the teacher, whose score is of the "
            f"others; the first: {lost[0]}"
        )
        state.telemetry.event(events.RUN_WARNING, text=text)
    found = state.rollout_pages.measured(groups, lost)
    metrics = {f"teacher/{name}": value for name, value in found.items()}
    record = TeacherRecord(metrics=metrics, answers=state.rollout_pages.answers(groups))
    write_teacher_record(path, record)
    return record


def _sampler(state: OnPolicyState, tags: Sequence[str]) -> GroupSampler:
    config, teacher = state.config, state.teachers.of(tags)
    return PolicySampler(teacher.client, 0, max_tokens=config.max_tokens, temperature=config.eval_temperature)


@stage(doing="closing the teacher", reads=("teacher_service",), writes=("teachers",))
async def cleanup_teacher(state: OnPolicyState) -> None:
    """Free what the teachers hold: clients, and the session with another service."""
    state.teachers = Teachers(by_tag={})
    await state.teacher_service.aclose()


def _source(state: OnPolicyState) -> RolloutSource:
    teach = TeacherAdvantages(state.teachers, state.config, state.telemetry)
    return rollout_source(state, rollout_assembler(state, adjust=teach, span="build_distill_datums"))


def _log(state: OnPolicyState) -> Callable[[FinishedStep], None]:
    return rollout_log(state, events.DISTILLATION_STEP)


def on_policy_workflow(
    config: OnPolicyDistillationSettings,
    environments: Environments,
    *,
    environment_names: Sequence[str] = (),
    data_files: Mapping[str, DataSource] | None = None,
) -> Workflow[OnPolicyState]:
    """The stages of on-policy distillation in environments, of whose rewards nothing is learned unless `advantage` says
    so. Where each of several environments has a teacher, `environment_names` are theirs, in the teachers' order.
    """
    return training_workflow(
        name="on_policy_distillation",
        state_class=OnPolicyState,
        start=lambda context: OnPolicyState(
            context=context, config=config, environments=environments, environment_names=environment_names
        ),
        setup=(check_teachers, init_tokenizer, build_distillation_dataset, init_evaluators, init_session, init_teacher),
        get_work=SlotStage(
            name="get_distillation_batch",
            make=_source,
            reads=(
                *("config", "train", "context_tokens", "session", "folder", "policy", "reference", "rollout_pages"),
                *("teachers", "total_steps", "steps_per_epoch", "cursor"),
            ),
            parts=("compute_advantages", "build_distill_datums", "teacher_inference"),
        ),
        forward_backward=objective_slot("distillation_forward_backward"),
        log=SlotStage(name="log_distillation_metrics", make=_log, reads=("config", "total_steps", "steps_per_epoch")),
        keep=keep_slot(TrainedLogprobs),
        look_back=post_kl_slot(),
        publish=publish_slot(),
        final=(cleanup_teacher,),
        descent=Descent.DISTILLED_FROM,
        result=on_policy_result,
        facts=on_policy_facts,
        data_files=data_files,
    )
