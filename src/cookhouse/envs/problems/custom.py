"""Environments from a list of problems and a function that makes one environment of one problem."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Generic, TypeVar, cast

import chz

from cookhouse.callables.arguments import checked
from cookhouse.callables.copies import own_copy
from cookhouse.callables.returned import refused
from cookhouse.envs.dataset import EnvConfig, GroupDataset
from cookhouse.envs.problems.problem import EnvFactoryGroupBuilder
from cookhouse.envs.prompting import Prompting
from cookhouse.rl import Env, EnvFromMessageEnv, MessageEnv
from cookhouse.rl.env.tags import checked_tag
from cookhouse.settings import EnvironmentSettings, part_of

P = TypeVar("P")


@dataclass(frozen=True, kw_only=True)
class MessageEnvironments(Generic[P]):
    """Fits `cookhouse.rl.RLDatasetBuilder`: each problem is played by a group of environments of messages."""

    settings: EnvironmentSettings
    make_env: Callable[[P], MessageEnv]
    train: Sequence[P]
    test: Sequence[P] = ()
    """Held-out problems; none: nothing is evaluated."""
    name: str = "env"
    """Metrics are also reported under it."""

    async def build(self) -> tuple[GroupDataset[P], GroupDataset[P] | None]:
        """Both sets. Raises `InputError` where there are no problems to train on."""
        config = part_of(EnvConfig, self.settings)
        train = config.train_set(self.train, partial(self._group, config.prompting, config.group_size))
        if not self.test:
            return train, None
        return train, config.test_set(self.test, partial(self._group, config.prompting, 1))

    def with_batch_size(self, batch_size: int) -> "MessageEnvironments[P]":
        """The same, with so many groups in a batch."""
        return replace(self, settings=chz.replace(self.settings, batch_size=batch_size))

    def _group(self, prompting: Prompting, group_size: int, problem: P) -> EnvFactoryGroupBuilder:
        make_env = partial(_tokens_env, self.make_env, problem, prompting)
        return EnvFactoryGroupBuilder(make_env=make_env, group_size=group_size, tags=(self.name,))


@checked
def message_environments(
    settings: EnvironmentSettings,
    make_env: Callable[[P], MessageEnv],
    *,
    train: Sequence[P],
    test: Sequence[P] | None = None,
    name: str = "env",
) -> MessageEnvironments[P]:
    """Environments of messages: `make_env` makes a fresh one, used once, of a problem; `settings` are the run's.
    `test` is held out, for evaluation; None: nothing is.

    To be picklable, `make_env` has to be a class or a function of a module.

    Raises:
        InputError: the name is that of the metrics of all environments.
    """
    held_out = () if test is None else own_copy(test)
    return MessageEnvironments(
        settings=settings, make_env=make_env, train=own_copy(train), test=held_out, name=checked_tag(name)
    )


def _tokens_env(make_env: Callable[[P], MessageEnv], problem: P, prompting: Prompting) -> Env:
    env: object = make_env(own_copy(problem))  # the environment may change it, and an epoch later another has it
    if not hasattr(env, "initial_observation") or not hasattr(env, "step"):
        raise refused(make_env, env, "it must return an environment, with async initial_observation and step")
    return EnvFromMessageEnv(cast("MessageEnv", env), prompting.renderer)
