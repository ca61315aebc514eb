"""A run before anything of it is done: its config, workflow, adapters, folder and service."""

import os
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from itertools import chain, count
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import chz

from cookhouse.adapters import Adapters, ServiceAddress
from cookhouse.blobs import open_blobs
from cookhouse.recipes.recipe import Recipe, find_recipe
from cookhouse.registry import ModelRegistry, open_registry
from cookhouse.runs.names import RUNS_FOLDER
from cookhouse.service.local import service_folder, stored_files
from cookhouse.settings import RunSettings
from cookhouse.settings.defaults import is_left_open
from cookhouse.settings.facts import NamedWeights, free_on_resume, named_weights
from cookhouse.settings.judge import EVALUATOR_SETTINGS, benchmark_files
from cookhouse.settings.published import origins_of
from cookhouse.weights.names import BaseModelWeights, find_weights, is_same_renderer, other_format

if TYPE_CHECKING:
    from cookhouse.telemetry import Telemetry
    from cookhouse.training import Interrupt
    from cookhouse.workflows import RunContext, Workflow

C = TypeVar("C", bound=RunSettings)


@dataclass(frozen=True, kw_only=True)
class Resolved:
    """A run, before anything of it is done."""

    recipe: Recipe[Any]
    config: RunSettings
    workflow: "Workflow[Any]"
    context: "RunContext"
    is_connecting: bool
    """Whether it connects to a service by itself: to `address`, else to a local engine."""
    address: ServiceAddress | None


def resolved(
    recipe: Recipe[C] | str,
    config: C,
    given: Adapters,
    telemetry: "Telemetry",
    interrupt: "Interrupt",
) -> Resolved:
    """The run that a config of `make_config` means: its stages, adapters, folder and service. Does nothing.

    Raises:
        InputError: one of them cannot be had.
    """
    from cookhouse.service.connection import chosen_service

    chosen = recipe_named(recipe)
    if config.log_path is None:
        config = chz.replace(config, log_path=_new_log_path(chosen.name))
    adapters = _with_registry(_with_blobs(given, config), config)
    config = in_format_of_weights(pinned(config, adapters), adapters.registry)
    workflow = chosen.workflow(config)
    # What is misspelled in the environment is reported for a run of runs, too, although only those connect.
    address = None if callable(given.service) else chosen_service(given.service, os.environ, config.base_url)
    is_connecting = not callable(given.service) and "service" in workflow.needs
    has_own_service = is_connecting and address is None
    name = _typed_name(recipe)
    context = _context(chosen, name, config, workflow, adapters, telemetry, interrupt, has_own_service=has_own_service)
    return Resolved(
        recipe=chosen,
        config=config,
        workflow=workflow,
        context=context,
        is_connecting=is_connecting,
        address=address,
    )


def recipe_named(recipe: Recipe[C] | str) -> Recipe[C]:
    """The recipe, or the one of that name. Raises as `find_recipe`."""
    return find_recipe(recipe) if isinstance(recipe, str) else recipe


def _with_blobs(adapters: Adapters, config: RunSettings) -> Adapters:
    """With the blob store that the settings name, if they name one."""
    if config.artifact_store is None:
        return adapters
    return replace(adapters, blobs=open_blobs(config.artifact_store))


def _with_registry(adapters: Adapters, config: RunSettings) -> Adapters:
    """With the registry that the settings name, if the run registers a model, or names one."""
    wants_one = getattr(config, "registered_model_name", None) is not None or any(
        named.is_registered for named in named_weights(config)
    )
    if adapters.registry is not None or not wants_one:
        return adapters
    return replace(adapters, registry=open_registry(config.registry, os.environ))


def pinned(config: C, adapters: Adapters) -> C:
    """With registered models by their versions: what is in production may be another when the run is resumed."""
    registered = [named for named in named_weights(config) if named.is_registered]
    if not registered:
        return config
    registry = adapters.registry or open_registry(config.registry, os.environ)
    ids = {named.name: registry.get(named.name).id for named in registered}
    changes = {
        named.setting: named.known.renamed(getattr(config, named.setting), lambda name: ids.get(name, name))
        for named in registered
    }
    made: C = chz.replace(config, **changes)
    return made


def _typed_name(recipe: Recipe[Any] | str) -> str:
    """Name to type to run the recipe again: by its own name if it has one of the open set."""
    if isinstance(recipe, Recipe) or ":" not in recipe.removeprefix(":"):
        return recipe.name if isinstance(recipe, Recipe) else find_recipe(recipe).name
    return recipe


def _new_log_path(recipe: str) -> str:
    """A folder among the runs that does not exist yet."""
    first = f"{RUNS_FOLDER}/{recipe}-{datetime.now().strftime('%Y%m%d-%H%M%S')}"
    candidates = chain([first], (f"{first}-{number}" for number in count(2)))
    return next(path for path in candidates if not Path(path).exists())


def _context(
    recipe: Recipe[C],
    name: str,
    config: C,
    workflow: "Workflow[Any]",
    adapters: Adapters,
    telemetry: "Telemetry",
    interrupt: "Interrupt",
    *,
    has_own_service: bool,
) -> "RunContext":
    from cookhouse.data import data_source, from_store
    from cookhouse.runs import FolderChoice, FolderSpec, choose_folder, decided_by_data, recorded_synthetic
    from cookhouse.workflows import RunContext

    asked = {f"evaluator {name}": data_source(Path(name)) for name in benchmark_files(config, EVALUATOR_SETTINGS)}
    folder = FolderSpec(
        path=run_folder(config),
        recipe=recipe.name,
        config=chz.asdict(config),
        origins=origins_of(config),
        left_open=frozenset(name for name in chz.chz_fields(config) if is_left_open(config, name)),
        typed=name,
        adapters=adapters.name,
        seed=config.seed,
        behavior=config.behavior_if_log_dir_exists,
        weights=tuple(named_weights(config)),
        free_fields=free_on_resume(type(config)),
        data={name: from_store(each, adapters.datasets) for name, each in {**workflow.data_files, **asked}.items()},
        base_models=partial(_base_models, recipe, config, adapters) if has_own_service else None,
        ask=adapters.ask,
        synthetic=adapters.synthetic,
        registry=lambda: adapters.registry or open_registry(config.registry, os.environ),
    )
    choice = choose_folder(folder)
    if choice is not FolderChoice.RESUME:
        check_formats(config, adapters.registry)
    else:
        synthetic = tuple(sorted({*folder.synthetic, *recorded_synthetic(folder.path)}))
        folder = replace(folder, synthetic=synthetic, origins={**folder.origins, **decided_by_data(folder.path)})
    return RunContext(
        recipe=name,
        folder=folder,
        choice=choice,
        adapters=adapters,
        telemetry=telemetry,
        interrupt=interrupt,
        files_of=partial(stored_files, service_folder(folder.path)),
    )


def _base_models(recipe: Recipe[C], config: C, adapters: Adapters) -> list[str]:
    return base_models_of((config, *recipe.parts(config)), adapters.ports)


def base_models_of(configs: Sequence[RunSettings], ports: Collection[str]) -> list[str]:
    """The models that are trained, and the others that settings name and the run's own service is to compute."""
    found: list[str] = []
    for config in configs:
        served = [named.name for named in named_weights(config) if named.known.is_base_model_served(config, ports)]
        found += [config.model_name, *(name for name in served if isinstance(find_weights(name), BaseModelWeights))]
    return list(dict.fromkeys(found))


def run_folder(config: RunSettings) -> Path:
    """Of a config that `resolved` has given one."""
    assert config.log_path is not None
    return Path(config.log_path)


def in_format_of_weights(config: C, registry: ModelRegistry | None) -> C:
    """With the chat format of the weights that the run begins with, where nobody set one."""
    begun = [named for named in _read_in_format(config) if named.known.purpose == "training"]
    if not begun or not is_left_open(config, "renderer_name"):
        return config
    trained = _renderer_of(begun[0], config, registry)
    return config if trained in (None, config.renderer_name) else chz.replace(config, renderer_name=trained)


def check_formats(config: RunSettings, registry: ModelRegistry | None) -> None:
    """Refuse weights that were trained in another chat format than the run's. Raises `InputError`."""
    if config.force_renderer:
        return
    for named in _read_in_format(config):
        trained = _renderer_of(named, config, registry)
        if trained is not None and not is_same_renderer(trained, config.renderer_name):
            raise other_format(named.setting, named.name, trained, config.renderer_name)


def _read_in_format(config: RunSettings) -> Sequence[NamedWeights]:
    return [named for named in named_weights(config) if named.known.in_own_format]


def _renderer_of(named: NamedWeights, config: RunSettings, registry: ModelRegistry | None) -> str | None:
    folders = [RUNS_FOLDER] if config.log_path is None else [Path(config.log_path).parent, RUNS_FOLDER]
    return find_weights(named.name, registry).origin(folders).renderer_name
