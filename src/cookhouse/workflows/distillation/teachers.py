"""Teachers of on-policy distillation: one for all groups, or one for each environment, found by the group's own tag.

Legend: D datums, T positions of a datum.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import tinker
from numpy.typing import NDArray

from cookhouse.errors import InputError, ServiceError
from cookhouse.rl import TrajectoryGroup, divergence_by_position, teacher_advantages
from cookhouse.sampling_client import SamplingClient
from cookhouse.settings import TeacherLossSettings
from cookhouse.telemetry import Telemetry, keys
from cookhouse.training.clients.logprobs import target_logprobs

_FIRST_POSITIONS = 4


@dataclass(frozen=True, kw_only=True)
class Teacher:
    """Fixed weights that say how likely they find a text."""

    name: str
    client: SamplingClient
    coef: float = 1.0
    """How much its divergence counts relative to that of the others."""


@dataclass(frozen=True, kw_only=True)
class Teachers:
    """Assignment of groups to teachers."""

    by_tag: Mapping[str, Teacher]
    """By the first tag of a group, which names its environment where there are several."""
    default: Teacher | None = None
    """Of every other group."""

    def of(self, tags: Sequence[str]) -> Teacher:
        """The teacher of a group with these tags. Raises `InputError` if it has none."""
        teacher = self.by_tag.get(dataset_of(tags), self.default)
        if teacher is None:
            raise InputError(f"no teacher for groups of {dataset_of(tags)}; there is one for {', '.join(self.by_tag)}")
        return teacher


def dataset_of(tags: Sequence[str]) -> str:
    """The environment or data set that a group is of, as metrics call it."""
    return tags[0] if tags else "all"


class TeacherAdvantages:
    """Adds to advantages how much likelier than the student its teacher finds each sampled token; fits `Adjust` of
    `RolloutAssembler`.
    """

    def __init__(self, teachers: Teachers, settings: TeacherLossSettings, telemetry: Telemetry) -> None:
        self._teachers = teachers
        self._settings = settings
        self._telemetry = telemetry

    async def __call__(
        self, data_D: Sequence[tinker.Datum], groups_D: Sequence[TrajectoryGroup]
    ) -> tuple[Sequence[tinker.Datum], Mapping[str, float]]:
        """Datums with −coef · (lp_student − lp_teacher) added at sampled tokens, and `teacher_kl` in nats: the mean of
        that difference over all sampled tokens, over those of each data set, and by position in the answer.

        Raises:
            InputError: a group has no teacher, or a service refused a sequence.
            ServiceError: a teacher failed, or gave no logprobs.
        """
        settings = self._settings
        teachers_D = [self._teachers.of(group.tags) for group in groups_D]
        with self._telemetry.span("teacher_inference"):
            logprobs_D_T = await _logprobs(teachers_D, data_D)
        coefs_D = [settings.teacher_kl_coef * teacher.coef for teacher in teachers_D]
        taught_D = teacher_advantages(data_D, logprobs_D_T, coefs_D, gamma=settings.teacher_kl_gamma)
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


def no_logprobs(name: str) -> ServiceError:
    """For a teacher that answers without what it is asked for."""
    return ServiceError(
        f"the teacher {name} gave no logprob for some token; take one whose service gives logprobs of a prompt"
    )


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
