"""On-policy distillation: the student attempts problems, and teachers say of each token how likely they find it.

Groups of rollouts become datums with the advantages that rewards give, if any (`algorithms.rollouts`); its teacher's
logprobs become further advantages (`TeacherAdvantages`); a policy loss trains on the datums.

Legend: D datums, T positions of a datum.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import tinker
from numpy.typing import NDArray

from cookhouse import algorithms as alg
from cookhouse.chat import Renderer
from cookhouse.data import DataSource
from cookhouse.registry import Descent
from cookhouse.rl import (
    EnvGroupBuilder,
    TeacherTerm,
    TrajectoryGroup,
    divergence_by_position,
    teacher_advantages,
    teacher_log_ratio,
)
from cookhouse.runs import Figure
from cookhouse.settings import OnPolicyDistillationSettings, TeacherLossSettings
from cookhouse.telemetry import Telemetry, events, keys
from cookhouse.training import ComputeLogprobs, target_logprobs
from cookhouse.workflows.distillation.evaluation import TaughtState, TeacherRecord, kept_record
from cookhouse.workflows.distillation.teachers import (
    NamedTeacher,
    Teacher,
    Teachers,
    TeacherService,
    check_logprobs,
    check_places,
    cleanup_teacher,
    dataset_of,
    named_teachers,
    no_logprobs,
    teacher_of,
    teacher_service,
)

_FIRST_POSITIONS = 4


@dataclass(kw_only=True)
class OnPolicyState(TaughtState, alg.ReinforcementState):
    """State that the stages of on-policy distillation share."""

    config: OnPolicyDistillationSettings
    environment_names: Sequence[str]
    teacher_term: TeacherTerm
    named: Sequence[NamedTeacher] = field(init=False)
    teachers: Teachers = field(init=False)

    def data_facts(self) -> Mapping[str, str]:
        said = [
            each.name
            + ("" if each.tag is None else f" for {each.tag}")
            + ("" if each.coef == 1.0 else f", counted {each.coef:g} times")
            for each in self.named
        ]
        return {**super().data_facts(), "teacher": "; ".join(said)}

    def figures(self, first: alg.Row, last: alg.Row, after: alg.Row) -> Sequence[Figure]:
        """Figures of rollouts, the divergence from the teacher in training, and its own score."""
        return [
            *super().figures(first, last, after),
            alg.trained_figure(keys.TEACHER_KL, "divergence from the teacher (nats per token)", first, last),
            *self.teacher_figures(first, after),
        ]


@alg.stage(doing="looking up the teachers", uses=("registry",))
async def check_teachers(
    context: alg.RunContext, config: OnPolicyDistillationSettings, environment_names: Sequence[str]
) -> Sequence[NamedTeacher]:
    """See that every teacher is there, one for each environment or one for all, and goes with the student."""
    named = named_teachers(config, environment_names)
    await check_places(context, config, [each.name for each in named])
    return named


build_distillation_dataset = replace(alg.build_rl_groups, name="build_distillation_dataset")


@alg.stage(doing="opening the teacher, asking it what is held out", needs=("service",), uses=("teacher",))
async def init_teacher(
    context: alg.RunContext,
    config: OnPolicyDistillationSettings,
    named: Sequence[NamedTeacher],
    renderer: Renderer,
    rollouts: alg.OpenedRollouts,
) -> tuple[TeacherService, Teachers, TeacherRecord]:
    """Open the teachers, see that they give logprobs, and have them answer the held-out problems, once in a run."""
    service = teacher_service(context, config, rollouts.opened)
    probe = renderer.build_generation_prompt([{"role": "user", "content": "Hello"}])
    teachers: dict[str | None, Teacher] = {}
    for each in named:
        client = await service.open(each.name)
        await check_logprobs(each.name, client, probe)
        teachers[each.tag] = Teacher(name=each.name, coef=each.coef, tag=each.tag, client=client)
    test, pages = rollouts.problems.test, rollouts.pages
    if not (test and config.eval_teacher):
        return service, teachers, TeacherRecord()

    def sampler_of(builder: EnvGroupBuilder) -> alg.PolicySampler:
        client = teacher_of(builder.logging_tags(), teachers).client
        return alg.PolicySampler(client, 0, max_tokens=config.max_tokens, temperature=config.eval_temperature)

    async def attempted() -> TeacherRecord:
        most = config.max_concurrent_groups
        groups, lost = await alg.attempt_all(test, rollouts.rollout, sampler_of, max_concurrent=most)
        if lost:
            text = (
                f"{len(lost)} of the {len(test)} held-out groups failed with the teacher, whose score is of the "
                f"others; the first: {lost[0]}"
            )
            context.telemetry.event(events.RUN_WARNING, text=text)
        metrics = {f"teacher/{name}": value for name, value in pages.measured(groups, lost).items()}
        return TeacherRecord(metrics=metrics, answers=pages.answers(groups))

    return service, teachers, await kept_record(context, rollouts.opened, attempted)


@alg.stage(parts=("compute_advantages", "build_distill_datums", "teacher_inference"))
def get_distillation_batch(
    context: alg.RunContext,
    config: OnPolicyDistillationSettings,
    steps: alg.Steps,
    reference: ComputeLogprobs | None,
    rollouts: alg.OpenedRollouts,
    teachers: Teachers,
    teacher_term: TeacherTerm,
) -> alg.RolloutSource:
    """The groups of a run as work, with the advantages that their teachers give on top of those of rewards."""
    teach = TeacherAdvantages(teachers, config, context.telemetry, teacher_term)
    assemble = alg.rollout_assembler(context, config, reference, rollouts, adjust=teach, span="build_distill_datums")
    return alg.rollout_source(config, steps, rollouts, assemble)


class TeacherAdvantages:
    """Adds to advantages how much likelier than the student its teacher finds each sampled token; fits `Adjust` of
    `RolloutAssembler`.
    """

    def __init__(
        self,
        teachers: Teachers,
        settings: TeacherLossSettings,
        telemetry: Telemetry,
        term: TeacherTerm = teacher_log_ratio,
    ) -> None:
        self._teachers = teachers
        self._settings = settings
        self._telemetry = telemetry
        self._term = term

    async def __call__(
        self, data_D: Sequence[tinker.Datum], groups_D: Sequence[TrajectoryGroup]
    ) -> tuple[Sequence[tinker.Datum], Mapping[str, float]]:
        """Datums with coef · term added at sampled tokens, by default −coef · (lp_student − lp_teacher), and
        `teacher_kl` in nats: the mean of that difference over all sampled tokens, over those of each data set, and by
        position in the answer.

        Raises:
            InputError: a group has no teacher, a service refused a sequence, or a term is no finite number.
            ServiceError: a teacher failed, or gave no logprobs.
        """
        settings = self._settings
        teachers_D = [teacher_of(group.tags, self._teachers) for group in groups_D]
        with self._telemetry.span("teacher_inference"):
            logprobs_D_T = await _logprobs(teachers_D, data_D)
        coefs_D = [settings.teacher_kl_coef * teacher.coef for teacher in teachers_D]
        gamma = settings.teacher_kl_gamma
        taught_D = teacher_advantages(data_D, logprobs_D_T, coefs_D, gamma=gamma, term=self._term)
        return taught_D, divergence_metrics(taught_D, [dataset_of(group.tags) for group in groups_D])


async def _logprobs(teachers_D: Sequence[Teacher], data_D: Sequence[tinker.Datum]) -> list[NDArray[np.float32]]:
    """Logprob of each target under the datum's own teacher."""
    indices: dict[int, list[int]] = {}
    for index, teacher in enumerate(teachers_D):
        indices.setdefault(id(teacher), []).append(index)
    found: dict[int, NDArray[np.float32]] = {}

    async def ask(own: Sequence[int]) -> None:
        teacher = teachers_D[own[0]]
        data = [data_D[index] for index in own]
        logprobs = await target_logprobs(teacher.client.compute_logprobs, data, f"asking the teacher {teacher.name}")
        for index, datum, logprobs_T in zip(own, data, logprobs, strict=True):
            is_sampled_T = datum.loss_fn_inputs["mask"].to_numpy() > 0
            if logprobs_T.shape != is_sampled_T.shape or not np.isfinite(logprobs_T[is_sampled_T]).all():
                raise no_logprobs(teacher.name)
            found[index] = logprobs_T

    try:
        async with asyncio.TaskGroup() as tasks:
            for own in indices.values():
                tasks.create_task(ask(own))
    except ExceptionGroup as failures:
        raise failures.exceptions[0] from failures
    return [found[index] for index in range(len(data_D))]


def divergence_metrics(data_D: Sequence[tinker.Datum], datasets_D: Sequence[str]) -> dict[str, float]:
    """`teacher_kl`, `teacher_kl/{data set}` and `teacher_kl_at/{positions}` of datums that have `teacher_logprobs`,
    each a mean over sampled tokens; nothing where there is none.

    Positions count the sampled tokens of a datum from 0; behind the first they are taken together by powers of two.
    """
    d_D = divergence_by_position(data_D)
    named: dict[str, list[NDArray[np.float64]]] = {keys.TEACHER_KL: d_D}
    for name, d_T in zip(datasets_D, d_D, strict=True):
        named.setdefault(f"{keys.TEACHER_KL}/{name}", []).append(d_T)
    start, longest = 0, max((d_T.size for d_T in d_D), default=0)
    while start < longest:
        width = 1 if start < _FIRST_POSITIONS else start
        label = f"{start:04d}" if width == 1 else f"{start:04d}-{start + width - 1:04d}"
        named[f"{keys.TEACHER_KL_AT}{label}"] = [d_T[start : start + width] for d_T in d_D]
        start += width
    joined = {name: np.concatenate(parts or [np.zeros(0)]) for name, parts in named.items()}
    return {name: float(values.mean()) for name, values in joined.items() if values.size}


def on_policy_workflow(
    config: OnPolicyDistillationSettings,
    environments: alg.Environments,
    *,
    environment_names: Sequence[str] = (),
    teacher_term: TeacherTerm = teacher_log_ratio,
    data_files: Mapping[str, DataSource] | None = None,
) -> alg.Workflow[OnPolicyState]:
    """The stages of on-policy distillation in environments, of whose rewards nothing is learned unless `advantage` says
    so. Where each of several environments has a teacher, `environment_names` are theirs, in the teachers' order.

    `teacher_term` shapes a teacher's logprobs token by token: of a datum's S sampled tokens, their logprobs in nats
    under the student, (S,), and under the teacher, (S,), it returns S terms, by default teacher − student. These, times
    `teacher_kl_coef` and the teacher's own coefficient, with `teacher_kl_gamma` discounted sums over later tokens, are
    added to the advantages. The metric `teacher_kl` is of the logprobs themselves.
    """
    return alg.training_workflow(
        name="on_policy_distillation",
        state_class=OnPolicyState,
        inputs={
            "config": config,
            "environments": environments,
            "environment_names": environment_names,
            "teacher_term": teacher_term,
        },
        setup=(
            check_teachers,
            alg.init_tokenizer,
            build_distillation_dataset,
            alg.init_evaluators,
            alg.init_rl_session,
            init_teacher,
        ),
        loop=alg.training_loop(
            get_work=get_distillation_batch,
            forward_backward=alg.objective_slot("distillation_forward_backward"),
            log=alg.log_slot("log_distillation_metrics", event=events.DISTILLATION_STEP),
            keep=alg.keep_rl_examples,
            look_back=alg.post_kl,
            publish=alg.publish_weights,
        ),
        final=(cleanup_teacher,),
        descent=Descent.DISTILLED_FROM,
        data_files=data_files,
    )
