"""An environment that does as it is told: turns to play, prompts, and where to fail."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

import tinker

from cookhouse.rl import Env, Metrics, StepResult, StopCondition, Trajectory

PROMPT = (1, 2, 3)
ANSWER = 1000
"""What the environment says after each action; no sampled token."""


@dataclass
class ScriptedBuilder:
    """`fail` is asked (where, member, attempt) before each thing an environment does, and may raise or wait."""

    group_size: int = 4
    num_turns: int = 1
    prompt_of: Callable[[int], Sequence[int]] = lambda _member: PROMPT
    fail: Callable[[str, int, int], Awaitable[None]] | None = None
    tool_calls: int = 0
    closed: list[tuple[int, int]] = field(default_factory=list)
    num_made: int = 0

    async def make_envs(self) -> Sequence[Env]:
        attempt, self.num_made = self.num_made, self.num_made + 1
        await self.check("make_envs", -1, attempt)
        return [ScriptedEnv(self, member, attempt) for member in range(self.group_size)]

    async def compute_group_rewards(
        self, trajectories_G: Sequence[Trajectory], envs_G: Sequence[Env]
    ) -> Sequence[tuple[float, Metrics]]:
        await self.check("group_rewards", -1, 0)
        assert len(trajectories_G) == len(envs_G)
        return [(10.0 * env.member, {"member": float(env.member)}) for env in envs_G if isinstance(env, ScriptedEnv)]

    def logging_tags(self) -> Sequence[str]:
        return ["scripted"]

    async def check(self, where: str, member: int, attempt: int) -> None:
        if self.fail is not None:
            await self.fail(where, member, attempt)


class CoupledScriptedBuilder(ScriptedBuilder):
    """Members 0 and 1 play with each other, and so do 2 and 3; the others play alone."""

    def coupled_members(self) -> Sequence[Sequence[int]]:
        return [(0, 1), (2, 3)]


class ScriptedEnv:
    def __init__(self, builder: ScriptedBuilder, member: int, attempt: int) -> None:
        self.builder = builder
        self.member = member
        self.attempt = attempt
        self.sequence = list(builder.prompt_of(member))
        self.turn = 0

    async def initial_observation(self) -> tuple[tinker.ModelInput, StopCondition]:
        await self.builder.check("initial_observation", self.member, self.attempt)
        return tinker.ModelInput.from_ints(self.sequence), [0]

    async def step(self, action: Sequence[int]) -> StepResult:
        await self.builder.check("step", self.member, self.attempt)
        self.turn += 1
        self.sequence += [*action, ANSWER]
        is_done = self.turn == self.builder.num_turns
        if is_done:
            await self.builder.check("last_step", self.member, self.attempt)
        return StepResult(
            reward=float(len(action)),
            episode_done=is_done,
            next_observation=tinker.ModelInput.empty() if is_done else tinker.ModelInput.from_ints(self.sequence),
            next_stop_condition=[0],
            num_tool_calls=self.builder.tool_calls,
        )

    async def close(self) -> None:
        await self.builder.check("close", self.member, self.attempt)
        self.builder.closed.append((self.member, self.attempt))


@dataclass
class OneEnvBuilder:
    """A group of one, with an environment made elsewhere and no group reward."""

    env: Env

    async def make_envs(self) -> Sequence[Env]:
        return [self.env]

    async def compute_group_rewards(
        self, trajectories_G: Sequence[Trajectory], envs_G: Sequence[Env]
    ) -> Sequence[tuple[float, Metrics]]:
        assert (len(trajectories_G), envs_G) == (1, [self.env])
        return [(0.0, {})]

    def logging_tags(self) -> Sequence[str]:
        return []
