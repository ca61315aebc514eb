"""What recipes by reward and from teachers share: a workflow over environments, and defaults."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import chz

from cookhouse.assets import TINY_MODEL
from cookhouse.catalog import default_renderer
from cookhouse.recipes.recipe import Recipe
from cookhouse.settings import (
    Default,
    OffPolicyDistillationSettings,
    ReinforcementSettings,
    by_model,
    is_embedded,
    redefault,
)

if TYPE_CHECKING:
    from cookhouse.rl import RLDatasetBuilder
    from cookhouse.workflows import OpenSampler, ReinforcementState, Workflow

C = TypeVar("C", bound=ReinforcementSettings)

MakeEnvironments: TypeAlias = "Callable[[C, OpenSampler], RLDatasetBuilder]"
"""Of a config; the second argument opens a sampler of another model, once rollouts run."""


def reinforcement_recipe(
    *, name: str, description: str, config_class: type[C], environments: "MakeEnvironments[C]"
) -> Recipe[C]:
    """A recipe that learns by reward, but for its config class and its environments."""

    def workflow(config: C) -> "Workflow[ReinforcementState]":
        from cookhouse.data import data_source
        from cookhouse.workflows import reinforcement_workflow

        settings = chz.asdict(config)
        files = {"train": settings.get("dataset_path"), "test": settings.get("test_path")}
        data_files = {name: data_source(path) for name, path in files.items() if path is not None}
        return reinforcement_workflow(
            config, lambda open_sampler: environments(config, open_sampler), data_files=data_files
        )

    return Recipe(name=name, description=description, config_class=config_class, workflow=workflow)


def rl_default(name: str, *, embedded: Any, published: Any) -> Any:
    """A setting of every reinforcement recipe with this one's defaults, for the embedded model and as published."""
    return redefault(ReinforcementSettings, name, by_model(embedded=embedded, published=published))


def off_policy_default(name: str, *, embedded: Any, published: Any) -> Any:
    """The same for recipes that learn what a teacher says."""
    return redefault(OffPolicyDistillationSettings, name, by_model(embedded=embedded, published=published))


def plain_renderer() -> Any:
    """The embedded model answers no problem in its chat format, so that nothing could be learned there by reward."""
    default = Default(
        lambda config: "human_ai" if is_embedded(config) else default_renderer(config.model_name),
        f"human_ai for {TINY_MODEL}, else the model's own",
    )
    return redefault(ReinforcementSettings, "renderer_name", default)
