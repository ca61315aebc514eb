"""From trajectories to the gradient: what the client assembles and the engine computes, against float64 by hand.

Catches an advantage, a logprob or a mask that is off by one position, lost where turns are merged, or given to a token
that the environment wrote.
"""

import math
from collections.abc import Callable

import numpy as np
import pytest
import tinker
import torch

from cookhouse.engine.contract import ForwardBackward, TrainingDatum
from cookhouse.engine.train.losses import LOSSES, loss_inputs
from cookhouse.rl import (
    ADVANTAGES,
    TokensWithLogprobs,
    Trajectory,
    TrajectoryGroup,
    Transition,
    assemble_group,
    for_loss,
)
from cookhouse.settings import AdvantageSettings

LOW, HIGH, BETA = 0.9, 1.1, 0.3
Slope = Callable[[float, float, float], float]
"""d(loss)/d(lp) of one sampled token, from its logprob now, its logprob when sampled, and its advantage."""


def ppo(lp: float, q: float, advantage: float) -> float:
    ratio = math.exp(lp - q)
    is_bounded = (ratio > HIGH and advantage > 0) or (ratio < LOW and advantage < 0)
    return 0.0 if is_bounded else -ratio * advantage


SLOPES: dict[str, tuple[dict[str, float | str], Slope]] = {
    "importance_sampling": ({}, lambda lp, q, advantage: -math.exp(lp - q) * advantage),
    "ppo": ({"clip_low_threshold": LOW, "clip_high_threshold": HIGH}, ppo),
    "cispo": (
        {"clip_low_threshold": LOW, "clip_high_threshold": HIGH},
        lambda lp, q, advantage: -min(max(math.exp(lp - q), LOW), HIGH) * advantage,
    ),
    "dro": ({"beta": BETA}, lambda lp, q, advantage: -advantage + BETA * (lp - q)),
}


def group(chance: np.random.Generator) -> TrajectoryGroup:
    """Three trajectories of one or two turns; the second turn of the last does not extend its first."""
    trajectories, token = [], 1
    for turns, extends in ((1, True), (2, True), (2, False)):
        transitions: list[Transition] = []
        for turn in range(turns):
            before: list[int] = []
            if turn and extends:
                before = [*transitions[-1].observation.to_ints(), *transitions[-1].action.tokens]
            action = list(range(token, token + 3))
            observation = [*before, 90 + turn, 95 + turn]
            transitions.append(
                Transition(
                    observation=tinker.ModelInput.from_ints(observation),
                    action=TokensWithLogprobs(tokens=action, maybe_logprobs=chance.normal(-2, 0.3, 3).tolist()),
                    reward=float(chance.normal()),
                    episode_done=turn == turns - 1,
                )
            )
            token += 3
        trajectories.append(Trajectory(transitions=transitions, final_observation=tinker.ModelInput.empty()))
    return TrajectoryGroup(
        trajectories_G=trajectories,
        group_rewards_G=[0.5, 0.0, -0.25],
        group_metrics_G=[{}] * 3,
        tags=[],
        version=0,
    )


@pytest.mark.parametrize("loss_fn", SLOPES)
def test_the_gradient_of_each_sampled_token_is_that_of_its_loss(loss_fn: str) -> None:
    config, slope = SLOPES[loss_fn]
    chance = np.random.default_rng(0)
    played = group(chance)
    # The tokens sampled are all different: each names its place.
    rewards = played.get_total_rewards()
    lp_by_token = {token: float(lp) for token, lp in enumerate(chance.normal(-2, 0.3, 16))}
    expected = {}
    for trajectory, reward in zip(played.trajectories_G, rewards, strict=True):
        for turn in trajectory.transitions:
            for token, q in zip(turn.action.tokens, turn.action.logprobs, strict=True):
                expected[token] = slope(lp_by_token[token], q, reward - sum(rewards) / 3)

    settings = AdvantageSettings()
    advantages_G = ADVANTAGES.find(settings.advantage)(played, settings)
    data_D = [for_loss(datum, loss_fn) for datum in assemble_group(played, advantages_G)]
    fields_D = [
        TrainingDatum(
            tokens_T=np.array(datum.model_input.to_ints()),
            loss_fn_inputs={name: values.to_numpy() for name, values in datum.loss_fn_inputs.items()},
        )
        for datum in data_D
    ]
    request = ForwardBackward(model_id="m", data_D=fields_D, loss_fn=loss_fn, loss_fn_config=config)
    targets = np.concatenate([datum.loss_fn_inputs["target_tokens"] for datum in fields_D])
    # An observation's logprob is one that a wrong mask would show by; dro's own is filled in by the client.
    lp = [lp_by_token.get(int(token), 0.0 if loss_fn == "dro" else -9.0) for token in targets]
    lp_M = torch.tensor(lp, dtype=torch.float64, requires_grad=True)
    loss_M = LOSSES[loss_fn].function(lp_M, loss_inputs(request, fields_D, torch.device("cpu")))
    (gradient_M,) = torch.autograd.grad(loss_M.sum(), lp_M)
    found = {int(token): float(g) for token, g in zip(targets, gradient_M, strict=True) if int(token) in expected}
    others = [float(g) for token, g in zip(targets, gradient_M, strict=True) if int(token) not in expected]
    assert others == [0.0] * len(others)
    assert found.keys() == expected.keys()
    for token, value in expected.items():
        assert found[token] == pytest.approx(value, rel=1e-6), token
