"""Trajectories to datums: what is merged, what is masked, and that merging loses no training signal."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest
import tinker
from hypothesis import given
from hypothesis import strategies as st

from cookhouse.errors import InputError
from cookhouse.rl import (
    TokensWithLogprobs,
    Trajectory,
    TrajectoryGroup,
    Transition,
    assemble_trajectory,
    for_loss,
    sampled_datums,
    trained_advantages,
)

Turn = tuple[Sequence[int], Sequence[int], Sequence[float]]
Signal = tuple[tuple[int, ...], int, float, float]
"""Context, target, advantage, logprob."""


def trajectory_of(turns: Sequence[Turn]) -> Trajectory:
    return Trajectory(
        transitions=[
            Transition(
                observation=tinker.ModelInput.from_ints(list(observation)),
                action=TokensWithLogprobs(tokens=action, maybe_logprobs=logprobs),
                reward=0.0,
                episode_done=False,
            )
            for observation, action, logprobs in turns
        ],
        final_observation=tinker.ModelInput.empty(),
    )


def fields(datum: tinker.Datum) -> dict[str, list[float]]:
    return {
        "tokens": list(datum.model_input.to_ints()),
        **{name: values.to_numpy().tolist() for name, values in datum.loss_fn_inputs.items()},
    }


def signals(data_D: Sequence[tinker.Datum]) -> list[Signal]:
    found: list[Signal] = []
    for datum in data_D:
        tokens = datum.model_input.to_ints()
        inputs = {name: values.to_numpy() for name, values in datum.loss_fn_inputs.items()}
        for t in np.flatnonzero(inputs["mask"]):
            found.append(
                (
                    tuple(tokens[: t + 1]),
                    int(inputs["target_tokens"][t]),
                    float(inputs["advantages"][t]),
                    float(inputs["logprobs"][t]),
                )
            )
    return sorted(found)


def test_a_turn_by_hand() -> None:
    [datum] = assemble_trajectory(trajectory_of([([1, 2, 3], [4, 5], [-0.5, -0.25])]), [2.0])
    assert fields(datum) == {
        "tokens": [1, 2, 3, 4],
        "target_tokens": [2, 3, 4, 5],
        "logprobs": [0, 0, -0.5, -0.25],
        "advantages": [0, 0, 2, 2],
        "mask": [0, 0, 1, 1],
    }
    dtypes = {name: values.dtype for name, values in datum.loss_fn_inputs.items()}
    assert dtypes == {"target_tokens": "int64", "logprobs": "float32", "advantages": "float32", "mask": "float32"}


def test_what_was_asked_in_between_cuts_nothing() -> None:
    """Catches a conversation that a call beside it cuts in two, and a token that two datums train."""
    turns: list[Turn] = [
        ([1], [2], [-1.0]),
        ([8], [9], [-2.0]),  # beside it
        ([1, 2, 7], [3], [-3.0]),
        ([1, 2, 5], [4], [-4.0]),  # a branch: what was sampled before is context
    ]
    trajectory = trajectory_of(turns)
    data_D = assemble_trajectory(trajectory, [0.5, 1.0, 1.5, 2.0])
    assert [fields(datum)["tokens"] for datum in data_D] == [[8], [1, 2, 7], [1, 2, 5]]
    assert [fields(datum)["mask"] for datum in data_D] == [[1], [1, 0, 1], [0, 0, 1]]
    group = TrajectoryGroup(
        trajectories_G=[trajectory], group_rewards_G=[0.0], group_metrics_G=[{}], tags=[], version=0
    )
    assert trained_advantages([group], data_D) == [[[[0.5], [1.0], [1.5], [2.0]]]]


def test_what_extends_is_merged_and_what_does_not_starts_anew() -> None:
    turns: list[Turn] = [([1], [2], [-1.0]), ([1, 2, 7], [3], [-2.0]), ([1, 7], [4, 4], [-3.0, -4.0])]
    data_D = assemble_trajectory(trajectory_of(turns), [0.5, 1.0, 1.5])
    assert [fields(datum) for datum in data_D] == [
        {
            "tokens": [1, 2, 7],
            "target_tokens": [2, 7, 3],
            "logprobs": [-1, 0, -2],
            "advantages": [0.5, 0, 1],
            "mask": [1, 0, 1],
        },
        {
            "tokens": [1, 7, 4],
            "target_tokens": [7, 4, 4],
            "logprobs": [0, -3, -4],
            "advantages": [0, 1.5, 1.5],
            "mask": [0, 1, 1],
        },
    ]


@st.composite
def episodes(draw: st.DrawFn) -> list[Turn]:
    """Turns that extend what came before, cut it short, or rewrite it, as histories do that drop their thinking."""
    tokens = st.lists(st.integers(0, 3), min_size=1, max_size=4)  # few tokens, so that prefixes agree by chance too
    turns: list[Turn] = []
    previous: list[int] = []
    for _ in range(draw(st.integers(1, 6))):
        kept = draw(st.sampled_from([previous, previous, previous[:-1], []]))
        observation = [*kept, *draw(tokens)]
        action = draw(tokens)
        logprobs = draw(st.lists(st.floats(-5, 0, width=32), min_size=len(action), max_size=len(action)))
        turns.append((observation, action, logprobs))
        previous = [*observation, *action]
    return turns


@given(episodes(), st.data())
def test_merged_and_unmerged_train_the_same(turns: list[Turn], data: st.DataObject) -> None:
    # The set of (context, target, advantage, logprob) is the whole training signal of a policy loss.
    advantages_T = data.draw(st.lists(st.floats(-4, 4, width=32), min_size=len(turns), max_size=len(turns)))
    merged = assemble_trajectory(trajectory_of(turns), advantages_T)
    apart = [
        datum
        for turn, advantage in zip(turns, advantages_T, strict=True)
        for datum in assemble_trajectory(trajectory_of([turn]), [advantage])
    ]
    assert signals(merged) == signals(apart)
    assert len(signals(merged)) == sum(len(action) for _, action, _ in turns)
    # Fewer where a turn goes on from one that is not the last.
    assert len(merged) <= 1 + sum(
        list(after[0][: len(before[0]) + len(before[1])]) != [*before[0], *before[1]]
        for before, after in pairwise(turns)
    )


@given(episodes())
def test_what_was_not_sampled_counts_for_nothing(turns: list[Turn]) -> None:
    for datum in assemble_trajectory(trajectory_of(turns), [1.5] * len(turns)):
        inputs = {name: values.to_numpy() for name, values in datum.loss_fn_inputs.items()}
        is_observed = inputs["mask"] == 0
        assert set(inputs["mask"].tolist()) <= {0.0, 1.0}
        assert not inputs["logprobs"][is_observed].any()
        assert not inputs["advantages"][is_observed].any()
        assert (inputs["advantages"][~is_observed] == 1.5).all()
        assert datum.model_input.to_ints()[1:] == inputs["target_tokens"][:-1].tolist()


def masked_turn(
    observation: Sequence[int], action: Sequence[int], logprobs: Sequence[float], is_masked: Sequence[bool]
) -> Transition:
    """A turn of which a grammar took probability away."""
    return Transition(
        observation=tinker.ModelInput.from_ints(list(observation)),
        action=TokensWithLogprobs(
            tokens=action, maybe_logprobs=logprobs, is_masked=is_masked, is_grammar_end=is_masked[-1]
        ),
        reward=0.0,
        episode_done=False,
    )


def test_tokens_that_a_grammar_had_a_hand_in_are_not_trained() -> None:
    """Catches a step of which probability was taken away that is trained, the end mark of a turn that a grammar ended,
    which nobody sampled, and tokens between them that are trained no more.
    """
    end = 9
    trajectory = Trajectory(
        transitions=[
            masked_turn([1, 2], [3, 4, 5], [-0.5, -0.25, -0.125], [True, False, True]),
            masked_turn([1, 2, 3, 4, 5, end, 6], [7, 8], [-1.0, -2.0], [False, False]),
        ],
        final_observation=tinker.ModelInput.empty(),
    )
    data_D = assemble_trajectory(trajectory, [2.0, 3.0])
    [datum] = map(fields, data_D)
    assert datum == {
        "tokens": [1, 2, 3, 4, 5, end, 6, 7],
        "target_tokens": [2, 3, 4, 5, end, 6, 7, 8],
        "logprobs": [0, 0, -0.25, 0, 0, 0, -1, -2],
        "advantages": [0, 0, 2, 0, 0, 0, 3, 3],
        "mask": [0, 0, 1, 0, 0, 0, 1, 1],
    }
    group = TrajectoryGroup(
        trajectories_G=[trajectory], group_rewards_G=[0.0], group_metrics_G=[{}], tags=[], version=0
    )
    assert trained_advantages([group], data_D) == [[[[0.0, 2.0, 0.0], [3.0, 3.0]]]]
    (weighed,) = map(fields, sampled_datums(trajectory))
    assert weighed["weights"] == datum["mask"]


def test_of_what_a_grammar_wrote_alone_there_is_no_datum() -> None:
    """Catches a datum without a token to train, of whose tokens no mean can be had, and turns behind it that take the
    advantages of others.
    """
    trajectory = Trajectory(
        transitions=[masked_turn([1], [2, 3], [-1.0, -1.0], [True, True]), masked_turn([5], [6], [-2.0], [False])],
        final_observation=tinker.ModelInput.empty(),
    )
    data_D = assemble_trajectory(trajectory, [2.0, 3.0])
    assert [fields(datum)["tokens"] for datum in data_D] == [[5]]
    group = TrajectoryGroup(
        trajectories_G=[trajectory], group_rewards_G=[0.0], group_metrics_G=[{}], tags=[], version=0
    )
    assert trained_advantages([group], data_D) == [[[[0.0, 0.0], [3.0]]]]


def test_the_mask_is_not_sent() -> None:
    [datum] = assemble_trajectory(trajectory_of([([1, 2], [4], [-0.5])]), [2.0])
    sent = for_loss(datum, "ppo")
    assert sorted(sent.loss_fn_inputs) == ["advantages", "logprobs", "target_tokens"]
    assert sent.model_input == datum.model_input
    assert for_loss(datum, "gspo").loss_fn_inputs["sequence_ratio_mask"].tolist() == [0, 1]
    assert "mask" in datum.loss_fn_inputs


def test_what_cannot_be_trained_is_refused() -> None:
    whole: Turn = ([1], [2], [-1.0])
    with pytest.raises(InputError, match="observation of turn 1 is empty"):
        assemble_trajectory(trajectory_of([whole, ([], [2], [-1.0])]), [1.0, 1.0])
    with pytest.raises(InputError, match="1 turns got 2 advantages"):
        assemble_trajectory(trajectory_of([whole]), [1.0, 1.0])
    with pytest.raises(InputError, match="2 tokens and 1 logprobs"):
        assemble_trajectory(trajectory_of([([1], [2, 3], [-1.0])]), [1.0])
    halved = Trajectory(
        transitions=[masked_turn([1], [2, 3], [-1.0, -1.0], [False])], final_observation=tinker.ModelInput.empty()
    )
    with pytest.raises(InputError, match="2 tokens and 1 marks of what a grammar did"):
        assemble_trajectory(halved, [1.0])
    without = Transition(
        observation=tinker.ModelInput.from_ints([1]),
        action=TokensWithLogprobs(tokens=[2], maybe_logprobs=None),
        reward=0.0,
        episode_done=True,
    )
    with pytest.raises(ValueError, match="without logprobs"):
        assemble_trajectory(Trajectory(transitions=[without], final_observation=tinker.ModelInput.empty()), [1.0])


def test_datums_for_cross_entropy_weigh_what_was_sampled() -> None:
    """Catches a prompt, or a tool's answer between two turns, that is trained on."""
    turns: list[Turn] = [([1, 2], [3, 4], [-0.5, -0.25]), ([1, 2, 3, 4, 5], [6], [-1.0])]
    (datum,) = map(fields, sampled_datums(trajectory_of(turns)))
    assert datum == {"tokens": [1, 2, 3, 4, 5], "target_tokens": [2, 3, 4, 5, 6], "weights": [0, 1, 1, 0, 1]}
