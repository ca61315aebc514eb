"""Trajectories and their advantages to the datums that train on them.

Legend: G members of a group, T positions of a datum (or turns of a trajectory), D datums.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
import tinker
from numpy.typing import NDArray

from cookhouse.errors import InputError
from cookhouse.losses.policy_losses import POLICY_LOSSES, PolicyLoss
from cookhouse.rl.trajectory import Trajectory, TrajectoryGroup, Transition, observed_tokens

GroupAdvantages: TypeAlias = Sequence[Sequence[Sequence[float]]]
"""Of each trajectory, of each turn, of each sampled token."""


def assemble_group(
    group: TrajectoryGroup,
    advantages_G_T: Sequence[Sequence[float] | NDArray[np.float64]],
    *,
    is_masked: Callable[[Trajectory], bool] = lambda _: False,
) -> list[tinker.Datum]:
    """Datums of all trajectories but those that are masked, in their order; advantages are one for each turn of each
    trajectory.
    """
    return [
        datum
        for trajectory, advantages_T in zip(group.trajectories_G, advantages_G_T, strict=True)
        if not is_masked(trajectory)
        for datum in assemble_trajectory(trajectory, advantages_T)
    ]


def assemble_trajectory(
    trajectory: Trajectory, advantages_T: Sequence[float] | NDArray[np.float64]
) -> list[tinker.Datum]:
    """The datums of a trajectory, in the order of their last turns.

    Every sequence (observation and action) stays open: an observation continues the datum of the longest one that it
    extends whole, whatever was asked in between; any other starts a new one, in which what was sampled before is
    context. So each action is trained once, with the turn that sampled it. Shifted like all datums: inputs drop the
    last token, `target_tokens` (int64) the first, and with them `logprobs`, `advantages` and `mask` (float32), which
    are 0 where the target was not sampled, and where a grammar took probability away. A sequence with nothing else has
    no datum.

    Raises:
        InputError: an observation is empty or holds an image, there is not one advantage per turn, or an action has not
            one logprob, and one `is_masked` if any, for each token.
        ValueError: an action came without logprobs.
    """
    if len(advantages_T) != len(trajectory.transitions):
        raise InputError(f"a trajectory of {len(trajectory.transitions)} turns got {len(advantages_T)} advantages")
    observations = [observed_tokens(transition.observation) for transition in trajectory.transitions]
    datums = []
    for turns in _turns_of_sequences(trajectory, observations):
        sequence = _Sequence()
        for turn in turns:
            sequence.add(observations[turn], trajectory.transitions[turn], float(advantages_T[turn]))
        datums.append(sequence.to_datum())
    return datums


def _turns_of_sequences(trajectory: Trajectory, observations_T: Sequence[list[int]]) -> list[list[int]]:
    """The turns of each sequence of a trajectory that has something to train, in the order of its datums."""
    sequences: list[tuple[list[int], list[int]]] = []  # tokens so far, and turns
    for turn, (transition, observation) in enumerate(zip(trajectory.transitions, observations_T, strict=True)):
        if not observation:
            raise InputError(f"the observation of turn {turn} is empty; its first sampled token has nothing before it")
        extended = [each for each in sequences if observation[: len(each[0])] == each[0]]
        tokens, turns = max(extended, key=lambda each: len(each[0]), default=([], []))
        if not turns:
            sequences.append((tokens, turns))
        tokens[:] = [*observation, *transition.action.tokens]
        turns.append(turn)
    trained = [
        turns for _, turns in sequences if any(any(trajectory.transitions[turn].action.trained) for turn in turns)
    ]
    return sorted(trained, key=lambda turns: turns[-1])


def trained_advantages(
    groups_P: Sequence[TrajectoryGroup],
    data_D: Sequence[tinker.Datum],
    *,
    is_masked: Callable[[Trajectory], bool] = lambda _: False,
) -> list[GroupAdvantages]:
    """The advantages that the datums of all groups have, in the order of the groups; 0 at tokens that are not trained,
    as all are in trajectories that are masked.
    """
    advantages_D = [datum.loss_fn_inputs["advantages"].to_numpy() for datum in data_D]
    by_group = by_turn(groups_P, advantages_D, is_masked=is_masked)
    return [
        [
            [
                [0.0] * len(transition.action.tokens) if values is None else values
                for transition, values in zip(trajectory.transitions, turns, strict=True)
            ]
            for trajectory, turns in zip(group.trajectories_G, of_group, strict=True)
        ]
        for group, of_group in zip(groups_P, by_group, strict=True)
    ]


def by_turn(
    groups_P: Sequence[TrajectoryGroup],
    values_D: Sequence[NDArray[Any]],
    *,
    is_masked: Callable[[Trajectory], bool] = lambda _: False,
) -> list[list[list[list[float] | None]]]:
    """Values of the targets of all groups' datums, at sampled tokens: of each group, of each trajectory, of each
    turn; None in a turn of which there is no datum.
    """
    values = iter(values_D)
    return [
        [
            [None] * len(trajectory.transitions) if is_masked(trajectory) else _taken(values, trajectory)
            for trajectory in group.trajectories_G
        ]
        for group in groups_P
    ]


def _taken(values: Iterator[NDArray[Any]], trajectory: Trajectory) -> list[list[float] | None]:
    """The next values, which are those of the trajectory's datums, by turn."""
    observations = [observed_tokens(transition.observation) for transition in trajectory.transitions]
    by_turn: list[list[float] | None] = [None] * len(observations)
    for turns in _turns_of_sequences(trajectory, observations):
        values_T = next(values)
        for turn in turns:
            start = len(observations[turn]) - 1  # of its first token as a target
            by_turn[turn] = values_T[start : start + len(trajectory.transitions[turn].action.tokens)].tolist()
    return by_turn


def with_advantages(datum: tinker.Datum, advantages_T: NDArray[Any]) -> tinker.Datum:
    """The datum with other advantages."""
    advantages = tinker.TensorData.from_numpy(advantages_T.astype(np.float32))
    return tinker.Datum(
        model_input=datum.model_input, loss_fn_inputs={**datum.loss_fn_inputs, "advantages": advantages}
    )


_OURS = frozenset({"mask", "teacher_logprobs"})
"""Parts of a datum that losses of the service do not know."""


def sampled_datums(trajectory: Trajectory) -> list[tinker.Datum]:
    """Datums for cross-entropy on what was sampled: `target_tokens` (int64, T) and `weights` (float32, T), which are
    its mask. Sequences and errors are those of `assemble_trajectory`.
    """
    return [
        tinker.Datum(
            model_input=datum.model_input,
            loss_fn_inputs={
                "target_tokens": datum.loss_fn_inputs["target_tokens"],
                "weights": datum.loss_fn_inputs["mask"],
            },
        )
        for datum in assemble_trajectory(trajectory, [0.0] * len(trajectory.transitions))
    ]


def for_loss(datum: tinker.Datum, loss_fn: str) -> tinker.Datum:
    """The datum as a loss of the service takes it: without `teacher_logprobs`, and with `mask` under the name that the
    loss has for it, if it has one.
    """
    if _OURS.isdisjoint(datum.loss_fn_inputs):
        return datum
    inputs = {name: values for name, values in datum.loss_fn_inputs.items() if name not in _OURS}
    mask_input = POLICY_LOSSES.get(loss_fn, PolicyLoss()).mask_input
    if mask_input is not None and "mask" in datum.loss_fn_inputs:
        inputs[mask_input] = datum.loss_fn_inputs["mask"]
    return tinker.Datum(model_input=datum.model_input, loss_fn_inputs=inputs)


class _Sequence:
    """Tokens of a datum to be, with logprob, advantage and mask of each as a target."""

    def __init__(self) -> None:
        self.tokens: list[int] = []
        self._logprobs: list[float] = []
        self._advantages: list[float] = []
        self._mask: list[float] = []

    def add(self, observation: list[int], transition: Transition, advantage: float) -> None:
        action, seen = transition.action, observation[len(self.tokens) :]
        for name, values in (("logprobs", action.logprobs), ("marks of what a grammar did", action.trained)):
            if len(values) != len(action.tokens):
                raise InputError(f"an action has {len(action.tokens)} tokens and {len(values)} {name}; they must match")
        self._extend(seen, [0.0] * len(seen), 0.0, [False] * len(seen))
        self._extend(action.tokens, action.logprobs, advantage, action.trained)

    def _extend(
        self, tokens: Sequence[int], logprobs: Sequence[float], advantage: float, trained: Sequence[bool]
    ) -> None:
        self.tokens += tokens
        self._logprobs += [value if one else 0.0 for value, one in zip(logprobs, trained, strict=True)]
        self._advantages += [advantage if one else 0.0 for one in trained]
        self._mask += map(float, trained)

    def to_datum(self) -> tinker.Datum:
        def targets(values: list[float]) -> tinker.TensorData:
            return tinker.TensorData.from_numpy(np.asarray(values[1:], dtype=np.float32))

        return tinker.Datum(
            model_input=tinker.ModelInput.from_ints(self.tokens[:-1]),
            loss_fn_inputs={
                "target_tokens": tinker.TensorData.from_numpy(np.asarray(self.tokens[1:], dtype=np.int64)),
                "logprobs": targets(self._logprobs),
                "advantages": targets(self._advantages),
                "mask": targets(self._mask),
            },
        )
