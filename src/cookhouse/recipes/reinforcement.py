"""Parts that recipes by reward and from teachers share: a workflow over environments, and defaults."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import chz

from cookhouse.assets import TINY_MODEL
from cookhouse.models.catalog import default_renderer
from cookhouse.naming import names_in
from cookhouse.recipes.recipe import Recipe
from cookhouse.settings import (
    Default,
    GradingSettings,
    GroupSettings,
    OffPolicyDistillationSettings,
    ReadIf,
    ReinforcementSettings,
    RolloutTrainingSettings,
    by_model,
    columns_setting,
    facts,
    is_embedded,
    narrowed,
    read_if,
    redefault,
)
from cookhouse.settings.checks import above
from cookhouse.settings.rates import published_rate

if TYPE_CHECKING:
    from cookhouse.data import DataSource
    from cookhouse.rl import RLDatasetBuilder
    from cookhouse.workflows import OpenSampler, ReinforcementState, Workflow

_RATE = "learning_rate"

C = TypeVar("C", bound=ReinforcementSettings)

MakeEnvironments: TypeAlias = "Callable[[C, OpenSampler], RLDatasetBuilder]"
"""Of a config; the second argument opens a sampler of another model, once rollouts run."""


def reinforcement_recipe(
    *, name: str, description: str, config_class: type[C], environments: "MakeEnvironments[C]"
) -> Recipe[C]:
    """A recipe that learns by reward, but for its config class and its environments."""

    def workflow(config: C) -> "Workflow[ReinforcementState]":
        from cookhouse.workflows import reinforcement_workflow

        return reinforcement_workflow(
            config, lambda open_sampler: environments(config, open_sampler), data_files=problem_files(config)
        )

    return Recipe(name=name, description=description, config_class=config_class, workflow=workflow)


def problem_files(config: RolloutTrainingSettings) -> "Mapping[str, DataSource]":
    """The files of problems that a config names, by what for."""
    from cookhouse.data import data_source

    settings = chz.asdict(config)
    files = {"train": settings.get("dataset_path"), "test": settings.get("test_path")}
    return {name: data_source(path) for name, path in files.items() if path is not None}


def rl_default(name: str, *, embedded: Any, published: Any) -> Any:
    """A setting of every reinforcement recipe with this one's defaults, for the embedded model and as published."""
    if name == _RATE:
        default: Default = published_rate(embedded=embedded, published=published, by_reward=True)
    else:
        default = by_model(embedded=embedded, published=published)
    return redefault(ReinforcementSettings, name, default)


def off_policy_default(name: str, *, embedded: Any, published: Any) -> Any:
    """The same for recipes that learn what a teacher says."""
    make = published_rate if name == _RATE else by_model
    return redefault(OffPolicyDistillationSettings, name, make(embedded=embedded, published=published))


def without_format() -> Any:
    """The setting `format_coef` of a recipe whose answers have no form to get wrong."""
    return narrowed(
        GroupSettings, "format_coef", read_if(lambda _: False, "where an answer has a form, and here none has")
    )


def _read_by_environment(setting: str) -> ReadIf:
    def is_read(config: Any) -> bool:
        from cookhouse.envs import reads_setting

        return reads_setting(config.env, setting)

    return read_if(is_read, f"by environments that have a {setting}, and env names none")


@chz.chz
class NamedEnvironmentSettings(GroupSettings, GradingSettings):
    """Of recipes whose environments are named by `env`."""

    help_title = "Problems"

    env_weights: str = chz.field(
        default="",
        doc="Share of each environment in a batch, separated by commas; default: equal.",
        validator=read_if(lambda config: len(names_in(config.env)) > 1, "with several names in env"),
        metadata=facts(is_list=True),
    )
    env_args: str = chz.field(default="{}", doc="Settings of the environment's own, a JSON object.")
    dataset_path: str | None = chz.field(
        default=None,
        doc="Training problems or prompts of the environment; default: its own. For environments that read them.",
        validator=_read_by_environment("dataset_path"),
        metadata=facts(aliases=("dataset",)),
    )
    test_path: str | None = chz.field(
        default=None,
        doc="Held-out problems of the environment; default: its own. For environments that read them.",
        validator=_read_by_environment("test_path"),
    )
    agent: str | None = chz.field(
        default=None,
        doc="For env=agent: an async function of a task and a client, as file.py:NAME or module:NAME.",
        validator=_read_by_environment("agent"),
    )
    agent_seconds: float = chz.field(
        default=600.0,
        doc="Seconds that a rollout of an agent may take.",
        validator=[above(0, "600"), _read_by_environment("agent_seconds")],
    )
    columns: str = columns_setting(_read_by_environment("columns"))
    grader: str = narrowed(GradingSettings, "grader", _read_by_environment("grader"))
    format_coef: float = narrowed(GroupSettings, "format_coef", _read_by_environment("format_coef"))

    @property
    def has_several_turns(self) -> bool:
        """True if an episode may have more turns than one."""
        from cookhouse.envs import have_several_turns

        config: Any = self
        return have_several_turns(config.env)

    @property
    def has_tools(self) -> bool:
        """True if an episode may call tools."""
        from cookhouse.envs import have_tools

        config: Any = self
        return have_tools(config.env)


def named_environments(config: Any, open_sampler: "OpenSampler") -> "RLDatasetBuilder":
    """The environments of a config that has `NamedEnvironmentSettings` and `EnvironmentSettings`."""
    from cookhouse.envs import parse_environments
    from cookhouse.grading import GRADERS

    GRADERS.find(config.grader)  # a name that is wrong is wrong also where no environment asks for it
    return parse_environments(config.env, config.env_weights, config.env_args, config, open_sampler)


def _has_agent(config: Any) -> bool:
    return "agent" in names_in(config.env)


def least_members() -> Any:
    """The setting `min_group_members` of a recipe whose environments may be agents, of which each may fail alone."""
    default = Default(lambda config: 1 if _has_agent(config) else None, "all of them, 1 for agents")
    return redefault(ReinforcementSettings, "min_group_members", default)


def failed_groups() -> Any:
    """The setting `on_failed_group` of such a recipe: an agent that fails ends no run."""
    default = Default(lambda config: "skip" if _has_agent(config) else "stop", "stop, skip for agents")
    return redefault(ReinforcementSettings, "on_failed_group", default)


def plain_renderer() -> Any:
    """The embedded model answers no problem in its chat format, so that nothing could be learned there by reward."""
    default = Default(
        lambda config: "human_ai" if is_embedded(config) else default_renderer(config.model_name),
        f"human_ai for {TINY_MODEL}, else the model's own",
    )
    return redefault(ReinforcementSettings, "renderer_name", default)
