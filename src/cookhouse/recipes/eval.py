"""Evaluation of weights on benchmarks; of several, one after the other, with what separates them."""

import json
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import chz

from cookhouse.errors import InputError
from cookhouse.extras import has_engine, install_command
from cookhouse.models.catalog import default_renderer
from cookhouse.naming import names_in
from cookhouse.recipes.config import settle
from cookhouse.recipes.pipeline import prepare_child, run_child
from cookhouse.recipes.program import become_command
from cookhouse.recipes.recipe import Recipe
from cookhouse.settings import Default, EvalSettings, ModelSettings, is_embedded, narrowed, read_if, redefault
from cookhouse.settings.defaults import is_left_open

if TYPE_CHECKING:
    from cookhouse.workflows import Workflow
import os
from dataclasses import replace

from cookhouse.assets import TINY_MODEL
from cookhouse.runs.listing.weights import weights_asked_for
from cookhouse.runs.names import RUNS_FOLDER
from cookhouse.service.connection import configured_service
from cookhouse.weights.names import CheckpointPath, Origin, RegisteredWeights, find_weights, with_registry

_OF_WEIGHTS = read_if(lambda config: config.openai_base_url is None, "without openai_base_url")


def origin_of(weights: str, registry: str | None = None, base_url: str | None = None) -> Origin:
    """Origin of named weights, as files on this machine have it, else the service that is configured. Raises
    `InputError` for a registered model that there is not.
    """
    named = with_registry(find_weights(weights), registry)
    found = named.origin((RUNS_FOLDER,))
    if found.base_model is None and isinstance(named, CheckpointPath):
        from cookhouse.service.local import stored_base_model

        return replace(found, base_model=stored_base_model(weights) or _served_base_model(weights, base_url))
    return found


def _served_base_model(path: str, base_url: str | None) -> str | None:
    from cookhouse.service.offer import base_model_at

    address = configured_service(os.environ, base_url)
    return None if address is None else base_model_at(address, path)


def base_model_of(weights: str | None, registry: str | None = None, base_url: str | None = None) -> str:
    """The base model of named weights; None means the embedded one.

    Raises:
        InputError: the registered model, or the base model, is not known here.
    """
    if weights is None:
        return TINY_MODEL
    base_model = origin_of(weights, registry, base_url).base_model
    if base_model is None:
        unread = f", or read what a server here keeps: {install_command('engine')}" if not has_engine() else ""
        raise InputError(
            f"nothing on this machine names the base model of {weights}; give it as model_name (--model){unread}"
        )
    return base_model


def _model(config: EvalSettings) -> str:
    if config.openai_base_url is not None:
        return config.weights or "default"
    if config.weights is not None:
        has_service = configured_service(os.environ, config.base_url) is not None
        weights_asked_for(config.weights, has_service=has_service, registry=config.registry)
    return base_model_of(config.weights, config.registry, config.base_url)


def _renderer(config: EvalSettings) -> str:
    if config.openai_base_url is not None:
        return "of the address"
    if config.weights is not None:
        trained = origin_of(config.weights, config.registry, config.base_url)
        if trained.renderer_name is not None and trained.base_model == config.model_name:
            return trained.renderer_name
    # The embedded model answers no problem in its chat format.
    return "human_ai" if is_embedded(config) else default_renderer(config.model_name)


@chz.chz
class Config(EvalSettings):
    """Settings of the recipe."""

    model_name: str = redefault(ModelSettings, "model_name", Default(_model, "that of the weights"))
    renderer_name: str = redefault(
        ModelSettings,
        "renderer_name",
        Default(_renderer, "that of the run that trained the weights, else the model's"),
        checks=[_OF_WEIGHTS],
    )
    force_renderer: bool = narrowed(ModelSettings, "force_renderer", _OF_WEIGHTS)
    benchmark_data: str | None = narrowed(
        EvalSettings, "benchmark_data", read_if(lambda config: config.benchmark, "with benchmark")
    )


def _workflow(config: Config) -> "Workflow[Any]":
    from cookhouse.workflows import ChildRun, comparison_workflow, evaluation_workflow

    others = _compared(config.compare_with)
    if not others:
        return evaluation_workflow(config)
    # What nobody set is for each model to find out of its weights.
    open_names = [name for name in ("model_name", "renderer_name") if is_left_open(config, name)]
    own = {"weights", "compare_with", "log_path", "behavior_if_log_dir_exists", "registry", *open_names}
    shared = {name: value for name, value in chz.asdict(config).items() if name not in own}

    def settings(weights: str) -> dict[str, Any]:
        registry = {"registry": config.registry} if isinstance(find_weights(weights), RegisteredWeights) else {}
        return {**shared, **registry, "weights": weights}

    names = [config.weights or config.model_name, *others]
    for weights in others:
        settle(RECIPE, {"given": settings(weights)})  # one that is misspelled is reported before all are asked
    runs = [
        ChildRun(name=f"model-{number}", recipe="eval", settings=partial(_settings_of, settings(weights)))
        for number, weights in enumerate(names, start=1)
    ]
    return comparison_workflow(config, runs, names, run_child, prepare_child)


def _compared(text: str) -> Sequence[str]:
    if not text.startswith("["):
        return names_in(text)
    try:
        names = json.loads(text)
    except ValueError as error:
        raise InputError(
            f'compare_with is no JSON list: {error}; write ["first", "second"], or first,second'
        ) from error
    if not isinstance(names, list) or not all(isinstance(name, str) and name for name in names):
        raise InputError(f'compare_with is {text}; write names of weights, as in ["first", "second"]')
    return names


def _settings_of(settings: dict[str, Any], folders: object) -> dict[str, Any]:
    del folders
    return settings


RECIPE = Recipe(
    name="eval",
    description="Evaluation of a base model, a checkpoint or any other weights on benchmarks and tasks of Inspect AI.",
    config_class=Config,
    workflow=_workflow,
)

if __name__ == "__main__":
    become_command(RECIPE)
