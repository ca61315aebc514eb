"""Running a recipe from Python; the command line is a thin layer over these functions."""

import asyncio
import os
import shlex
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from itertools import chain, count
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import chz

from cookhouse.adapters import Adapters, ServiceAddress, check_adapters
from cookhouse.blobs import open_blobs
from cookhouse.errors import BadRowsError, InputError
from cookhouse.models.hub import HuggingFaceHub, hub_in_use
from cookhouse.recipes.config import make_config
from cookhouse.recipes.recipe import Recipe, find_recipe
from cookhouse.registry import ModelRegistry, names_registered_model, open_registry
from cookhouse.runs.names import ATTEMPT_ANSWERS_FILE, INSPECT_FOLDER, RUNS_FOLDER
from cookhouse.service.local import default_state_dir, service_folder, stored_files
from cookhouse.settings import RunSettings, defaults_taken, unread_defaults
from cookhouse.settings.defaults import has_default
from cookhouse.settings.facts import NamedWeights, free_on_resume, named_weights
from cookhouse.settings.judge import EVALUATOR_SETTINGS, benchmark_files
from cookhouse.weights.checkpoints import CHECKPOINTS_FILE
from cookhouse.weights.names import BaseModel, PeftWeights, find_weights

if TYPE_CHECKING:
    from cookhouse.runs import RunPlan, RunResult
    from cookhouse.service.connection import Connection
    from cookhouse.service.process import ServerProcess
    from cookhouse.telemetry import Telemetry
    from cookhouse.training import Interrupt
    from cookhouse.workflows import RunContext, Workflow

C = TypeVar("C", bound=RunSettings)


def run(
    recipe: Recipe[C] | str,
    config: C | Mapping[str, Any] | None = None,
    *,
    adapters: Adapters | None = None,
) -> "RunResult[Any]":
    """Run a recipe to its end, to an interrupt, or to an error, and wait for it; also in a notebook.

    Arguments, Ctrl-C and errors as `run_async`. Where an event loop runs already, the run has its own in a thread.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        has_loop = False  # to be run below: errors of a run are not because of this one
    else:
        has_loop = True
    if has_loop:
        return _run_in_thread(lambda interrupt: run_async(recipe, config, adapters=adapters, interrupt=interrupt))
    return asyncio.run(run_async(recipe, config, adapters=adapters))


async def run_async(
    recipe: Recipe[C] | str,
    config: C | Mapping[str, Any] | None = None,
    *,
    adapters: Adapters | None = None,
    interrupt: "Interrupt | None" = None,
) -> "RunResult[Any]":
    """Run a recipe to its end, to an interrupt, or to an error.

    Args:
        recipe: the recipe; or its name, `module:NAME` or `file.py:NAME`.
        config: an object of the recipe's config class, or values by setting; default: its defaults. Where a setting
            names data, it may be rows as well: a list, or a function that returns or yields them.
        adapters: what fills the ports. Without a `service`, that is the one at `config.base_url` or in
            `TINKER_BASE_URL`, the hosted one if there is a key alone, and without either the embedded engine, started
            for this run. Without `sinks`, telemetry goes to the terminal.
        interrupt: asks the run to stop, as Ctrl-C does.

    The first Ctrl-C (SIGINT) or SIGTERM stops submitting, finishes what is in flight, saves, and returns a result whose
    `summary.is_interrupted` is set; another one, a second later or more, raises `KeyboardInterrupt` at once.

    SIGUSR1 and `max_minutes` end the run at its next step in the same way; `summary.stopped` then says why.

    Raises:
        InputError: something in the config or the data cannot be used; nothing half-made is left behind.
        ServiceError: the training service failed, or has not answered for `service_patience_seconds`.

    What ends a run that can be continued carries the command that does so, in a note.
    """
    from cookhouse.telemetry import Telemetry, TerminalSink, events, make_console

    given = adapters or Adapters()
    check_adapters("Adapters", given)
    with (
        Telemetry([TerminalSink(make_console())] if given.sinks is None else given.sinks) as telemetry,
        hub_in_use(given.hub or HuggingFaceHub(say=lambda text: telemetry.event(events.HUB_DOWNLOAD, text=text))),
    ):
        settled = make_config(_recipe(recipe), config, given.service)
        async with _early_server(given, settled) as process:
            return await _run(recipe, settled, given, telemetry, interrupt, process)


async def _run(
    recipe: Recipe[C] | str,
    config: C,
    given: Adapters,
    telemetry: "Telemetry",
    interrupt: "Interrupt | None",
    process: "ServerProcess | None",
) -> "RunResult[Any]":
    """As `run_async`; `process` is to be its embedded engine, if it needs one. This is where the SDK is loaded."""
    from cookhouse.runs import record_failure
    from cookhouse.telemetry import events
    from cookhouse.training import Interrupt
    from cookhouse.workflows import run_workflow

    stopping = interrupt or Interrupt()
    is_part = stopping.is_taken  # of another run, whose limits hold for all of it
    if not is_part:
        stopping.on_request = partial(_tell_request, telemetry)
    found = resolved(recipe, config, given, telemetry, stopping)
    workflow, context = found.workflow, found.context
    if (taken := defaults_taken(found.config)) is not None:
        telemetry.event(events.RUN_DEFAULTS, text=taken)
    for note in unread_defaults(found.config):
        telemetry.event(events.DATA_NOTE, text=note)
    try:
        with stopping.on_signals(), stopping.after(None if is_part else found.config.max_minutes):
            if not found.is_connecting:
                if process is not None:
                    await process.stop()
                return await run_workflow(workflow, context)
            async with _connection(found, stopping, telemetry, process) as connection:
                connected = replace(context, adapters=replace(context.adapters, service=connection.connect))
                return await connection.guard(run_workflow(workflow, connected))
    except (Exception, KeyboardInterrupt) as error:
        if isinstance(error, InputError) and not isinstance(error, BadRowsError):
            raise
        if isinstance(error, Exception):
            record_failure(context.folder.path, error)
        for note in _how_to_resume(context, given.program or "cookhouse"):
            error.add_note(note)
        raise


def _tell_request(telemetry: "Telemetry", reason: str | None) -> None:
    from cookhouse.telemetry import events

    if reason is None:
        telemetry.event(events.RUN_INTERRUPT)
    else:
        telemetry.event(events.RUN_ENDS, text=reason)


def dry_run(
    recipe: Recipe[C] | str, config: C | Mapping[str, Any] | None = None, *, adapters: Adapters | None = None
) -> "RunPlan":
    """What a run would do: paths, tokens, truncation, steps, memory. Opens no session, and makes no folder.

    It resolves what a run resolves before it opens one, with the same `adapters`, and refuses in the same words. It
    blocks, and is not to be called inside an event loop.

    Raises:
        InputError: as `run` would.
    """
    from cookhouse.telemetry import Telemetry
    from cookhouse.training import Interrupt
    from cookhouse.workflows import dry_run_workflow

    # Whether a folder that exists may be used is checked; what would be asked about it is left to the run.
    given = replace(adapters or Adapters(), ask=lambda _: "delete")
    check_adapters("Adapters", given)
    with nullcontext() if given.hub is None else hub_in_use(given.hub):
        settled = make_config(_recipe(recipe), config, given.service)
        found = resolved(recipe, settled, given, Telemetry(), Interrupt())
        plan = asyncio.run(dry_run_workflow(found.workflow, found.context))
    changed = {name: value for name, value in plan.config.items() if not has_default(found.config, name)}
    changed.pop("log_path", None)  # the plan's folder
    plan = replace(plan, changed=changed, notes=[*plan.notes, *unread_defaults(found.config)])
    taken = defaults_taken(found.config)
    return plan if taken is None else replace(plan, facts={**plan.facts, "defaults": taken})


@dataclass(frozen=True, kw_only=True)
class Resolved:
    """A run, before anything of it is done."""

    recipe: Recipe[Any]
    config: RunSettings
    workflow: "Workflow[Any]"
    context: "RunContext"
    is_connecting: bool
    """Whether it connects to a service by itself: to `address`, else to an embedded engine."""
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

    chosen = _recipe(recipe)
    if config.log_path is None:
        config = chz.replace(config, log_path=_new_log_path(chosen.name))
    adapters = _with_registry(_with_blobs(given, config), config)
    config = pinned(config, adapters)
    workflow = chosen.workflow(config)
    context = _context(chosen, _typed_name(recipe), config, workflow, adapters, telemetry, interrupt)
    # What is misspelled in the environment is told of a run of runs, too, although only those connect.
    address = None if callable(given.service) else chosen_service(given.service, os.environ, config.base_url)
    is_connecting = not callable(given.service) and "service" in workflow.needs
    return Resolved(
        recipe=chosen,
        config=config,
        workflow=workflow,
        context=context,
        is_connecting=is_connecting,
        address=address,
    )


def _recipe(recipe: Recipe[C] | str) -> Recipe[C]:
    return find_recipe(recipe) if isinstance(recipe, str) else recipe


def _early_server(given: Adapters, config: RunSettings) -> "AbstractAsyncContextManager[ServerProcess | None]":
    """The process of the embedded engine, if a run with these is to have one; whether it needs it is not known yet."""
    from cookhouse.service.connection import chosen_service, early_server

    if callable(given.service):
        return nullcontext()
    return early_server(chosen_service(given.service, os.environ, config.base_url))


def _with_blobs(adapters: Adapters, config: RunSettings) -> Adapters:
    """With the blob store that the settings name, if they name one."""
    if config.artifact_store is None:
        return adapters
    return replace(adapters, blobs=open_blobs(config.artifact_store))


def _with_registry(adapters: Adapters, config: RunSettings) -> Adapters:
    """With the registry that the settings name, if the run registers a model, or names one."""
    wants_one = getattr(config, "registered_model_name", None) is not None or any(
        map(_is_registered, named_weights(config))
    )
    if adapters.registry is not None or not wants_one:
        return adapters
    return replace(adapters, registry=open_registry(config.registry, os.environ))


def pinned(config: C, adapters: Adapters) -> C:
    """With registered models by their versions: what is in production may be another when the run is resumed."""
    registered = [named for named in named_weights(config) if _is_registered(named)]
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


def _is_registered(named: NamedWeights) -> bool:
    """Whether it is the name of a registered model, and of no file."""
    return names_registered_model(named.name) and not Path(named.name).exists()


def _typed_name(recipe: Recipe[Any] | str) -> str:
    """How a person names the recipe to run it again: by its own name if it has one of the open set."""
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
) -> "RunContext":
    from cookhouse.data import data_source, from_store
    from cookhouse.runs import FolderChoice, FolderSpec, choose_folder, recorded_synthetic
    from cookhouse.workflows import RunContext

    asked = {f"evaluator {name}": data_source(Path(name)) for name in benchmark_files(config, EVALUATOR_SETTINGS)}
    folder = FolderSpec(
        path=_folder(config),
        recipe=recipe.name,
        config=chz.asdict(config),
        typed=name,
        adapters=adapters.name,
        seed=config.seed,
        behavior=config.behavior_if_log_dir_exists,
        weights=tuple(named_weights(config)),
        free_fields=free_on_resume(type(config)),
        data={name: from_store(each, adapters.datasets) for name, each in {**workflow.data_files, **asked}.items()},
        ask=adapters.ask,
        synthetic=adapters.synthetic,
    )
    choice = choose_folder(folder)
    if choice is FolderChoice.RESUME:
        folder = replace(folder, synthetic=tuple(sorted({*folder.synthetic, *recorded_synthetic(folder.path)})))
    return RunContext(
        recipe=name,
        folder=folder,
        choice=choice,
        adapters=adapters,
        telemetry=telemetry,
        interrupt=interrupt,
        files_of=partial(stored_files, service_folder(folder.path)),
    )


def _folder(config: RunSettings) -> Path:
    assert config.log_path is not None
    return Path(config.log_path)


def _connection(
    run: Resolved, interrupt: "Interrupt", telemetry: "Telemetry", process: "ServerProcess | None"
) -> "AbstractAsyncContextManager[Connection]":
    from cookhouse.service.connection import open_connection

    config, adapters, address = run.config, run.context.adapters, run.address
    configs, folder = (config, *run.recipe.parts(config)), _folder(config)
    return open_connection(
        address,
        base_models=_base_models(configs, adapters.ports),
        state_dir=service_folder(folder),
        read_state_dirs=() if address is not None else _other_state_dirs(configs, folder, adapters.registry),
        peft_folders=_peft_folders(configs),
        patience_seconds=config.service_patience_seconds,
        interrupt=interrupt,
        telemetry=telemetry,
        is_chosen=adapters.service is not None,
        process=process,
    )


def _peft_folders(configs: Sequence[RunSettings]) -> list[Path]:
    named = [find_weights(named.name) for config in configs for named in named_weights(config)]
    return [weights.folder for weights in named if isinstance(weights, PeftWeights)]


def _base_models(configs: Sequence[RunSettings], ports: Collection[str]) -> list[str]:
    """The models that are trained, and the others that settings name and the run's own service is to compute."""
    found: list[str] = []
    for config in configs:
        served = [named.name for named in named_weights(config) if named.known.is_base_model_served(config, ports)]
        found += [config.model_name, *(name for name in served if isinstance(find_weights(name), BaseModel))]
    return list(dict.fromkeys(found))


def _other_state_dirs(configs: Sequence[RunSettings], folder: Path, registry: "ModelRegistry | None") -> Sequence[Path]:
    """Where the embedded services keep the weights that configs name, if other runs on this machine saved them."""
    named = [named.name for config in configs for named in named_weights(config)]
    runs = [find_weights(name, registry).saved_by((folder.parent, RUNS_FOLDER)) for name in named]
    kept = dict.fromkeys(service_folder(run) for run in runs if run is not None and run != folder)
    served = default_state_dir(os.environ)
    if any(run is None and stored_files(served, name) for name, run in zip(named, runs, strict=True)):
        kept[served] = None
    return [state_dir for state_dir in kept if state_dir.is_dir()]


def _how_to_resume(context: "RunContext", program: str) -> list[str]:
    """The command that continues a run that broke, if it has saved anything."""
    folder = context.folder.path
    answers = dict.fromkeys((ATTEMPT_ANSWERS_FILE, INSPECT_FOLDER), "its answers are kept")
    kept = {CHECKPOINTS_FILE: "its last checkpoint is kept", **answers}
    found = [said for file, said in kept.items() if (folder / file).exists() and (folder / file).stat().st_size]
    settings = f"log_path={shlex.quote(str(folder))} behavior_if_log_dir_exists=resume"
    return [f"{said}; continue with:\n  {program} {context.command} {settings}" for said in found[:1]]


def _run_in_thread(start: "Callable[[Interrupt], Any]") -> "RunResult[Any]":
    """Run a coroutine on an event loop of its own, in a thread. Ctrl-C asks it to stop, a second later at once."""
    from cookhouse.training import Interrupt

    interrupt = Interrupt()
    loop = asyncio.new_event_loop()
    outcome: list[Any] = []
    failure: list[BaseException] = []

    def work() -> None:
        try:
            outcome.append(loop.run_until_complete(start(interrupt)))
        except BaseException as error:
            failure.append(error)
        finally:
            loop.close()

    thread = threading.Thread(target=work, name="cookhouse run", daemon=True)
    thread.start()
    while thread.is_alive():
        try:
            thread.join()
        except KeyboardInterrupt:
            if interrupt.hear_signal():
                loop.call_soon_threadsafe(interrupt.request)
    if failure:
        raise failure[0]
    return outcome[0]  # type: ignore[no-any-return]
