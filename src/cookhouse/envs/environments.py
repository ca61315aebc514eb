"""Environments by name, and several of them in one run."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import chz
import tinker

from cookhouse.data import parse_weights, shares
from cookhouse.envs.builder import ConfigBuilder
from cookhouse.envs.dataset import EnvConfig
from cookhouse.envs.second_model import OpenSampler
from cookhouse.errors import CookhouseError, InputError, where_raised
from cookhouse.naming import OpenSet, names_in
from cookhouse.rl import Env, EnvGroupBuilder, Metrics, RLDataset, RLDatasetBuilder, Trajectory
from cookhouse.rl.env.env import groups_of
from cookhouse.rl.env.tags import checked_tag
from cookhouse.settings import EnvironmentSettings
from cookhouse.settings.documents import read_json

EnvironmentBuilder: TypeAlias = Callable[[EnvironmentSettings, OpenSampler], RLDatasetBuilder]
"""Makes the environments of a run from its settings; the second argument opens a sampler of another model, once
rollouts run."""


def _check(thing: Any) -> EnvironmentBuilder | None:
    if isinstance(thing, type) and issubclass(thing, EnvConfig):
        return ConfigBuilder(thing)
    return thing if callable(thing) else None


ENVIRONMENTS: OpenSet[EnvironmentBuilder] = OpenSet(
    kind="environment",
    group="cookhouse.environments",
    builtin={
        "arithmetic": "cookhouse.envs.problems.arithmetic:ArithmeticConfig",
        "gsm8k": "cookhouse.envs.problems.math:GSM8K",
        "math": "cookhouse.envs.problems.math:MATH",
        "deepmath": "cookhouse.envs.problems.math:DEEPMATH",
        "polaris": "cookhouse.envs.problems.math:POLARIS",
        "prompts": "cookhouse.envs.problems.prompts:PromptsConfig",
        "tulu3": "cookhouse.envs.problems.prompts:TULU3",
        "python_functions": "cookhouse.envs.problems.python_functions:PythonFunctionsConfig",
        "deepcoder": "cookhouse.envs.problems.deepcoder:DeepCoderConfig",
        "twenty_questions": "cookhouse.envs.games.twenty_questions:TwentyQuestionsConfig",
        "self_play": "cookhouse.envs.games.self_play:SelfPlayConfig",
        "verifiers": "cookhouse.envs.libraries.verifiers:VerifiersConfig",
        "agent": "cookhouse.envs.libraries.agent:AgentConfig",
        "textarena": "cookhouse.envs.libraries.textarena:TextArenaConfig",
    },
    check=_check,
    wants="an environment is a function of the run's settings and of what opens a second model, which returns a "
    "builder of data sets; or a class of EnvConfig",
)


def reads_setting(env: str, setting: str) -> bool:
    """True if one of the environments in a text depends on a setting of the run; one of a user's own function is taken
    to. Raises as `OpenSet.find`.
    """
    return any(builder is None or builder.reads(setting) for builder in _builders(env))


def have_several_turns(env: str) -> bool:
    """True if episodes of one of the environments in a text may have several turns. Raises as `OpenSet.find`."""
    return any(builder is None or builder.config_class.has_several_turns for builder in _builders(env))


def have_tools(env: str) -> bool:
    """True if episodes of one of the environments in a text may call tools. Raises as `OpenSet.find`."""
    classes = [None if builder is None else builder.config_class for builder in _builders(env)]
    return any(each is None or (each.has_several_turns and each.has_tools) for each in classes)


def _builders(env: str) -> list[ConfigBuilder | None]:
    """Of each name; None for a function of a user's own."""
    found = [ENVIRONMENTS.find(name) for name in names_in(env)]
    return [builder if isinstance(builder, ConfigBuilder) else None for builder in found]


@dataclass(frozen=True, kw_only=True)
class Environments:
    """One environment, or several mixed by weight; fits `cookhouse.rl.RLDatasetBuilder`."""

    names: Sequence[str]
    weights: Sequence[float]
    """One for each name, above 0."""
    args: dict[str, Any]
    """Settings of an environment's own, by their names; only for one that is alone."""
    settings: EnvironmentSettings
    open_sampler: OpenSampler

    async def build(self) -> tuple[RLDataset, RLDataset | None]:
        """Data sets whose every batch holds groups of each environment, in the proportion of the weights.

        Raises:
            UnknownNameError: there is no such environment.
            InputError: an environment cannot be made, or a batch is too small to hold a group of each.
        """
        sizes = shares(self.settings.batch_size, self.weights, self.names)
        parts = [await self._build(name, size) for name, size in zip(self.names, sizes, strict=True)]
        if len(parts) == 1:
            return parts[0]
        train = Mixed(parts=[part for part, _ in parts], names=self.names)
        tests = [(test, name) for (_, test), name in zip(parts, self.names, strict=True) if test is not None]
        if not tests:
            return train, None
        return train, Mixed(parts=[test for test, _ in tests], names=[name for _, name in tests])

    def with_batch_size(self, batch_size: int) -> "Environments":
        """The same, with so many groups in a batch."""
        return replace(self, settings=chz.replace(self.settings, batch_size=batch_size))

    def steps_of(self, train: RLDataset, batch_size: int) -> int:
        """Steps of an epoch of what `build` gave, if its batches had another size; 0: that holds no group of each."""
        parts = train.parts if isinstance(train, Mixed) else [train]
        try:
            sizes = shares(batch_size, self.weights, self.names)
        except InputError:
            return 0
        return max(-(-groups_of(part) // size) for part, size in zip(parts, sizes, strict=True))

    async def _build(self, name: str, batch_size: int) -> tuple[RLDataset, RLDataset | None]:
        make: Any = ENVIRONMENTS.find(name)
        settings = chz.replace(self.settings, batch_size=batch_size)
        try:
            built = make(settings, self.open_sampler, **self.args)
            return await built.build()  # type: ignore[no-any-return]
        except (CookhouseError, tinker.TinkerError):
            raise
        except Exception as error:
            raise InputError(
                f"environment {name} cannot be built: {type(error).__name__}: {error} ({where_raised(error)})"
            ) from error


def parse_environments(
    env: str, env_weights: str, env_args: str, settings: EnvironmentSettings, open_sampler: OpenSampler
) -> Environments:
    """Environments from texts: names and weights separated by commas, arguments as a JSON object.

    Raises:
        InputError: there is no name, not one weight above 0 for each, or the arguments are no object, or not of one.
    """
    names = [name.strip() for name in env.split(",") if name.strip()]
    if len(names) > 1:
        [environment_tag(name) for name in names]
    if not names:
        raise InputError("env names no environment; give a name, module:NAME or file.py:NAME")
    weights = parse_weights(env_weights, names, "env_weights") or [1.0] * len(names)
    try:
        args = read_json(env_args)
    except ValueError as error:
        raise InputError(f"env_args is {env_args!r}; it must be a JSON object: {error}") from error
    if not isinstance(args, dict):
        raise InputError(f"env_args is {env_args!r}; it must be a JSON object, such as {{}}")
    if args and len(names) > 1:
        raise InputError("env_args is for one environment, and env names several; give each its own defaults in a file")
    return Environments(names=names, weights=weights, args=args, settings=settings, open_sampler=open_sampler)


@dataclass(frozen=True, kw_only=True)
class Mixed:
    """Data sets side by side: batch i is batch i of each. An epoch is over when the largest is through."""

    parts: Sequence[RLDataset]
    names: Sequence[str]
    """Tags of the groups of each part."""

    @property
    def asked(self) -> str:
        """Text that the questions of each part are given besides their rows."""
        questions = ((name, getattr(part, "asked", "")) for name, part in zip(self.names, self.parts, strict=True))
        return "; ".join(f"{name}: {asked}" for name, asked in questions if asked)

    def __len__(self) -> int:
        return max(len(part) for part in self.parts)

    def get_batch(self, index: int) -> Sequence[EnvGroupBuilder]:
        return [
            _Tagged(builder=builder, tag=environment_tag(name))
            for part, name in zip(self.parts, self.names, strict=True)
            for builder in part.get_batch(index)
        ]


@dataclass(frozen=True, kw_only=True)
class _Tagged:
    """A group with one more tag: the environment that it is of."""

    builder: EnvGroupBuilder
    tag: str

    async def make_envs(self) -> Sequence[Env]:
        return await self.builder.make_envs()

    async def compute_group_rewards(
        self, trajectories_G: Sequence[Trajectory], envs_G: Sequence[Env]
    ) -> Sequence[tuple[float, Metrics]]:
        return await self.builder.compute_group_rewards(trajectories_G, envs_G)

    def logging_tags(self) -> Sequence[str]:
        return list(dict.fromkeys([self.tag, *self.builder.logging_tags()]))


def environment_tag(name: str) -> str:
    """Tag of an environment's groups and metrics, where there are several: the last part of a
    `module:NAME` or `file.py:NAME`. It is the first of a group's tags. Raises `InputError` where it is none.
    """
    return checked_tag(name.rpartition(":")[2].rpartition(".")[2])
