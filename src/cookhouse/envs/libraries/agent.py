"""Agents of a user's own: async functions that are given a task and a client, and return the reward."""

import inspect
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import chz

from cookhouse.agents import Agent, AgentEnv
from cookhouse.envs.dataset import EnvConfig, GroupDataset
from cookhouse.envs.problems.problem import EnvFactoryGroupBuilder
from cookhouse.envs.prompting import Prompting
from cookhouse.envs.rows import read_problems
from cookhouse.errors import InputError
from cookhouse.naming import OpenSet
from cookhouse.settings.checks import above

Task: TypeAlias = dict[str, Any]


def _check(thing: Any) -> Agent | None:
    is_async = inspect.iscoroutinefunction(thing) or inspect.iscoroutinefunction(type(thing).__call__)
    return thing if callable(thing) and is_async else None


AGENTS: OpenSet[Agent] = OpenSet(
    kind="agent",
    group="cookhouse.agents",
    builtin={},
    check=_check,
    wants="an agent is an async function of a task, which is a dict, and an openai.AsyncOpenAI that returns a reward",
    takes=("task", "client"),
)


@dataclass(frozen=True, kw_only=True)
class _MakeEnv:
    """Picklable: the agent is loaded where it is used."""

    agent: str
    task: Task
    seconds: float
    prompting: Prompting

    def __call__(self) -> AgentEnv:
        prompting = self.prompting
        return AgentEnv(
            AGENTS.find(self.agent),
            self.task,
            prompting.renderer,
            model_name=prompting.model_name,
            seconds=self.seconds,
        )


@chz.chz
class AgentConfig(EnvConfig):
    """Tasks that an agent works on, one rollout each time; a row of the data is a task."""

    unread = frozenset({"format_coef"})

    agent: str | None = chz.field(default=None, doc="The agent, as file.py:NAME or module:NAME.")
    agent_seconds: float = chz.field(default=600.0, doc="Seconds that a rollout may take.", validator=above(0, "600"))
    dataset_path: str | None = chz.field(default=None, doc="Tasks to train on, a row each.")
    test_path: str | None = chz.field(default=None, doc="Tasks to evaluate on; default: none.")

    async def build(self) -> tuple[GroupDataset[Task], GroupDataset[Task] | None]:
        """Both sets. Raises `InputError` where there is no agent, or no task."""
        if self.agent is None:
            raise InputError("env=agent needs agent=file.py:NAME, an async function of a task and a client")
        if self.dataset_path is None:
            raise InputError("env=agent needs dataset_path=FILE, whose rows are the tasks of the agent")
        AGENTS.find(self.agent)  # a name that is wrong is found before the run starts
        train = self.train_set(read_problems(self.dataset_path, dict), partial(self._group, self.group_size))
        if self.test_path is None:
            return train, None
        return train, self.test_set(read_problems(self.test_path, dict), partial(self._group, 1))

    def _group(self, group_size: int, task: Task) -> EnvFactoryGroupBuilder:
        assert self.agent is not None
        make_env = _MakeEnv(agent=self.agent, task=task, seconds=self.agent_seconds, prompting=self.prompting)
        return EnvFactoryGroupBuilder(make_env=make_env, group_size=group_size, tags=("agent",))
