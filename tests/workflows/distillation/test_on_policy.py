"""Teachers' logprobs as advantages: the formula, whose teacher it is, and what is refused."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import tinker

from cookhouse.algorithms.rollouts.assembler import RolloutAssembler
from cookhouse.errors import InputError, ServiceError
from cookhouse.rl import (
    TeacherTerm,
    TokensWithLogprobs,
    Trajectory,
    TrajectoryGroup,
    Transition,
    for_loss,
    teacher_advantages,
    teacher_log_ratio,
)
from cookhouse.settings import AdvantageSettings, TeacherLossSettings
from cookhouse.telemetry import Telemetry
from cookhouse.workflows.distillation.on_policy import TeacherAdvantages, divergence_metrics
from cookhouse.workflows.distillation.teachers import Teacher, Teachers

pytestmark = pytest.mark.anyio


class Says:
    """A teacher that finds every token equally likely."""

    def __init__(self, logprob: float | None) -> None:
        self.logprob = logprob
        self.asked: list[list[int]] = []

    async def compute_logprobs(self, prompt: tinker.ModelInput) -> list[float | None]:
        self.asked.append(prompt.to_ints())
        return [None, *[self.logprob] * (prompt.length - 1)]

    async def sample(self, *_: object) -> tinker.SampleResponse:
        raise AssertionError


def group(tag: str, first: int, rewards: Sequence[float]) -> TrajectoryGroup:
    """Members that answer [first, 7] with [8, 9], of logprobs −0.5 and −1.5."""
    trajectories = [
        Trajectory(
            transitions=[
                Transition(
                    observation=tinker.ModelInput.from_ints([first, 7]),
                    action=TokensWithLogprobs(tokens=[8, 9], maybe_logprobs=[-0.5, -1.5]),
                    reward=reward,
                    episode_done=True,
                )
            ],
            final_observation=tinker.ModelInput.empty(),
        )
        for reward in rewards
    ]
    return TrajectoryGroup(
        trajectories_G=trajectories,
        group_rewards_G=[0.0] * len(rewards),
        group_metrics_G=[{}] * len(rewards),
        tags=[tag, "skill"],
        version=0,
    )


def assembler(
    teachers: Teachers, advantage: str = "none", term: TeacherTerm = teacher_log_ratio, **settings: Any
) -> RolloutAssembler:
    teach = TeacherAdvantages(teachers, TeacherLossSettings(**settings), Telemetry(), term)
    chosen = AdvantageSettings(advantage=advantage, constant_reward_groups="keep" if advantage == "none" else "remove")
    return RolloutAssembler(chosen, Telemetry(), adjust=teach)


async def test_the_advantage_is_how_much_likelier_the_teacher_finds_a_token() -> None:
    # Catches a sign, a shift by one position, and advantages at tokens that were not sampled.
    teacher = Teacher(name="t", client=Says(-1.0))
    made = await assembler({None: teacher}, teacher_kl_coef=2.0)([group("a", 1, [0.0])])
    [datum] = made.data_D
    assert datum.loss_fn_inputs["advantages"].to_numpy().tolist() == [0.0, -2.0 * (-0.5 + 1.0), -2.0 * (-1.5 + 1.0)]
    assert datum.loss_fn_inputs["teacher_logprobs"].to_numpy().tolist() == [0.0, -1.0, -1.0]
    assert made.payload.advantages_P == [[[[-1.0, 1.0]]]]
    assert made.metrics == {
        "teacher_kl": 0.0,
        "teacher_kl/a": 0.0,
        "teacher_kl_at/0000": 0.5,
        "teacher_kl_at/0001": -0.5,
    }
    assert set(for_loss(datum, "importance_sampling").loss_fn_inputs) == {"target_tokens", "logprobs", "advantages"}


async def test_a_term_of_ones_own_shapes_what_a_teacher_adds() -> None:
    # Catches a term that is given positions nobody sampled, whose coefficient is lost, or that changes the metric.
    seen = []

    def capped(student_S: Any, teacher_S: Any) -> Any:
        seen.append((student_S.tolist(), teacher_S.tolist()))
        return np.minimum(teacher_S - student_S, 0.25)

    teachers: Teachers = {None: Teacher(name="t", client=Says(-1.0))}
    made = await assembler(teachers, term=capped, teacher_kl_coef=2.0)([group("a", 1, [0.0])])
    assert seen == [([-0.5, -1.5], [-1.0, -1.0])]
    assert made.data_D[0].loss_fn_inputs["advantages"].to_numpy().tolist() == [0.0, 2 * -0.5, 2 * 0.25]
    assert made.metrics["teacher_kl_at/0001"] == -0.5


@pytest.mark.parametrize("term", [lambda *_: 1.0, lambda student_S, _: student_S * math.nan])
async def test_a_term_that_is_no_number_for_each_token_is_refused(term: TeacherTerm) -> None:
    teachers: Teachers = {None: Teacher(name="t", client=Says(-1.0))}
    with pytest.raises(InputError, match=r"2 sampled tokens, .* return a finite number for each"):
        await assembler(teachers, term=term)([group("a", 1, [0.0])])


async def test_rewards_count_where_they_are_asked_to() -> None:
    teachers: Teachers = {None: Teacher(name="t", client=Says(-0.5))}
    made = await assembler(teachers, "group_centered")([group("a", 1, [1.0, 0.0])])
    assert [datum.loss_fn_inputs["advantages"].to_numpy().tolist() for datum in made.data_D] == [
        [0.0, 0.5, 1.5],
        [0.0, -0.5, 0.5],
    ]


async def test_a_dropped_group_does_not_misalign_teachers() -> None:
    # Catches teachers that are found by a group's place in the batch.
    clients = {"a": Says(-1.0), "b": Says(-2.0)}
    teachers: Teachers = {tag: Teacher(name=tag, client=client) for tag, client in clients.items()}
    groups = [group("a", 1, [1.0, 1.0]), group("b", 2, [1.0, 0.0]), group("a", 3, [0.0, 1.0]), group("b", 4, [0, 0])]
    made = await assembler(teachers, "group_centered")(groups)
    firsts = [datum.model_input.to_ints()[0] for datum in made.data_D]
    assert firsts == [2, 2, 3, 3]
    said = [datum.loss_fn_inputs["teacher_logprobs"].to_numpy()[1] for datum in made.data_D]
    assert said == [-2.0, -2.0, -1.0, -1.0]
    assert [sequence[0] for sequence in clients["a"].asked] == [3, 3]
    assert [advantages is None for advantages in made.payload.advantages_P] == [True, False, False, True]
    assert made.metrics["teacher_kl/a"] == 0.0
    assert made.metrics["teacher_kl/b"] == 1.0


async def test_each_teacher_has_its_coefficient() -> None:
    teachers: Teachers = {
        "a": Teacher(name="a", client=Says(0.0)),
        "b": Teacher(name="b", client=Says(0.0), coef=0.5),
    }
    made = await assembler(teachers)([group("a", 1, [0.0]), group("b", 2, [0.0])])
    assert [datum.loss_fn_inputs["advantages"].to_numpy().tolist()[1:] for datum in made.data_D] == [
        [0.5, 1.5],
        [0.25, 0.75],
    ]
    with pytest.raises(InputError, match="no teacher for groups of c; there is one for a, b"):
        await assembler(teachers)([group("c", 1, [0.0])])


@pytest.mark.parametrize("logprob", [None, math.nan, -math.inf])
async def test_a_teacher_without_logprobs_is_refused(logprob: float | None) -> None:
    teachers: Teachers = {None: Teacher(name="mute", client=Says(logprob))}
    with pytest.raises(ServiceError, match="the teacher mute gave no logprob for some token"):
        await assembler(teachers)([group("a", 1, [0.0])])


def test_later_divergence_is_discounted() -> None:
    datum = tinker.Datum(
        model_input=tinker.ModelInput.from_ints([1, 2, 3]),
        loss_fn_inputs={
            "target_tokens": tinker.TensorData.from_numpy(np.array([2, 3, 4])),
            **{
                name: tinker.TensorData.from_numpy(np.array(values, dtype=np.float32))
                for name, values in (("logprobs", [0, -1, -2]), ("advantages", [0, 1, 0]), ("mask", [0, 1, 1]))
            },
        },
    )
    [taught] = teacher_advantages([datum], [[math.nan, -2.0, -4.0]], [1.0], gamma=0.5)
    # d = 1 and 2: −1 − 0.5 · 2, and −2.
    assert taught.loss_fn_inputs["advantages"].to_numpy().tolist() == [0.0, -1.0, -2.0]
    with pytest.raises(InputError, match="3 targets and 1 logprobs"):
        teacher_advantages([datum], [[0.0]], [1.0])


def test_positions_are_taken_together_by_powers_of_two() -> None:
    length = 11
    datum = tinker.Datum(
        model_input=tinker.ModelInput.from_ints(list(range(length))),
        loss_fn_inputs={
            "target_tokens": tinker.TensorData.from_numpy(np.arange(length)),
            **{
                name: tinker.TensorData.from_numpy(np.array(values, dtype=np.float32))
                for name, values in (
                    ("logprobs", range(length)),
                    ("teacher_logprobs", [0.0] * length),
                    ("mask", [1.0] * length),
                )
            },
        },
    )
    found = divergence_metrics([datum], ["a"])
    at = {name.rpartition("/")[2]: value for name, value in found.items() if name.startswith("teacher_kl_at/")}
    assert at == {"0000": 0, "0001": 1, "0002": 2, "0003": 3, "0004-0007": 5.5, "0008-0015": 9.0}
    assert divergence_metrics([], []) == {}
