"""A curriculum: problems that are solved about half the time are drawn more often.

    cookhouse run examples/curriculum.py:RECIPE max_steps=20

A problem's weight is p(1 − p), the variance of a reward of 0 or 1, with p from what its answers earned so far.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import chz

from cookhouse import Recipe
from cookhouse import algorithms as alg
from cookhouse.recipes import NamedEnvironmentSettings, named_environments, plain_renderer
from cookhouse.rl import group_metrics
from cookhouse.settings import ReinforcementSettings
from cookhouse.workflows import ReinforcementState, reinforcement_workflow


def weight(earned: Sequence[float]) -> float:
    """Of a problem, from the mean reward of each of its groups; one that is new counts as solved half the time."""
    p = (0.5 + sum(earned)) / (1 + len(earned))
    return max(p * (1 - p), 0.02)


@chz.chz
class Config(NamedEnvironmentSettings, ReinforcementSettings):
    env: str = "arithmetic"
    renderer_name: str = plain_renderer()
    batch_size: int = 16
    max_tokens: int = 8
    learning_rate: float = 2e-3


@alg.stage()
def do_rollout(
    context: alg.RunContext, config: Config, reference: Any, rollouts: alg.OpenedRollouts, steps: alg.Steps
) -> alg.BatchSource[Any, Any]:
    curriculum = alg.WeightedProblems(rollouts.problems.train, weight, seed=config.seed)
    assemble = alg.rollout_assembler(context, config, reference, rollouts)

    async def attempt(numbers: Sequence[int]) -> alg.Assembled[alg.RolloutPayload]:
        groups = await rollouts.sample_each([curriculum.problems[number] for number in numbers])
        sampled = {number: group for number, group in zip(numbers, groups, strict=True) if group is not None}
        for number, group in sampled.items():
            curriculum.learn(number, group)
        assembled = await assemble(list(sampled.values()))
        return replace(assembled, metrics={**assembled.metrics, **group_metrics(list(sampled.values()))})

    return alg.batch_source(curriculum, attempt, steps, rollouts.opened, ahead=False)


def workflow(config: Config) -> alg.Workflow[ReinforcementState]:
    return reinforcement_workflow(config, partial(named_environments, config)).replaced("loop.do_rollout", do_rollout)


RECIPE = Recipe(name="curriculum", description="RL with a curriculum.", config_class=Config, workflow=workflow)
