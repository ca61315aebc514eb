"""Running a recipe from Python; the command line is a thin layer over these functions."""

import asyncio
import os
import shlex
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import chz

from cookhouse.adapters import Adapters, GivenAdapters, given_adapters
from cookhouse.callables.arguments import checked
from cookhouse.errors import BadRowsError, InputError
from cookhouse.extras import has_engine, install_command
from cookhouse.models.hub import HuggingFaceHub, hub_in_use
from cookhouse.recipes.config import make_config
from cookhouse.recipes.recipe import Recipe
from cookhouse.recipes.resolved import Resolved, base_models_of, recipe_named, resolved, run_folder
from cookhouse.recipes.served import check_model, check_pair_loss, priced
from cookhouse.registry import ModelRegistry
from cookhouse.runs.names import ATTEMPT_ANSWERS_FILE, INSPECT_FOLDER, RUNS_FOLDER
from cookhouse.service.local import default_state_dir, service_folder, stored_files
from cookhouse.settings import RunSettings, defaults_taken, unread_defaults
from cookhouse.settings.defaults import has_default, in_words
from cookhouse.settings.facts import named_weights
from cookhouse.view.beside import PageBeside
from cookhouse.weights.checkpoints import CHECKPOINTS_FILE
from cookhouse.weights.names import PeftWeights, find_weights

if TYPE_CHECKING:
    from cookhouse.runs import RunPlan, RunResult
    from cookhouse.service.connection import Connection
    from cookhouse.service.process import ServerProcess
    from cookhouse.telemetry import Telemetry
    from cookhouse.training import Interrupt
    from cookhouse.workflows import RunContext

C = TypeVar("C", bound=RunSettings)

_NAMING_METRICS = ("headline", "keep_best", "pause_metric")
"""Settings that name a metric, which is then written."""


@checked
def run(
    recipe: Recipe[C] | str,
    config: C | Mapping[str, Any] | None = None,
    *,
    adapters: GivenAdapters = None,
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


@checked
async def run_async(
    recipe: Recipe[C] | str,
    config: C | Mapping[str, Any] | None = None,
    *,
    adapters: GivenAdapters = None,
    interrupt: "Interrupt | None" = None,
) -> "RunResult[Any]":
    """Run a recipe to its end, to an interrupt, or to an error.

    Args:
        recipe: the recipe; or its name, `module:NAME` or `file.py:NAME`.
        config: an object of the recipe's config class, or values by setting; default: its defaults. Where a setting
            names data, it may be rows as well: a list, or a function that returns or yields them.
        adapters: what fills the ports: `Adapters`, adapters by port, or the name of a bundle, as `noop`. Without a
            `service`, that is the one at `config.base_url` or in `TINKER_BASE_URL`, the hosted one if there is a key
            alone, and without either the local engine, started for this run. Without `sinks`, telemetry goes to the
            terminal.
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

    given = given_adapters(adapters)
    with (
        Telemetry([TerminalSink(make_console())] if given.sinks is None else given.sinks) as telemetry,
        hub_in_use(given.hub or HuggingFaceHub(say=lambda text: telemetry.event(events.HUB_DOWNLOAD, text=text))),
    ):
        settled = await asyncio.to_thread(make_config, recipe_named(recipe), config, given.service)
        await asyncio.to_thread(check_pair_loss, settled, given.service)
        await asyncio.to_thread(check_model, settled, given.service)
        settled, prices = await asyncio.to_thread(priced, settled, given.service)
        if prices is not None:
            telemetry.notes([f"prices: {prices}"])
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
    """As `run_async`; `process` is to be its local engine, if it needs one. This is where the SDK is loaded."""
    from cookhouse.runs import settling
    from cookhouse.telemetry import events
    from cookhouse.training import Interrupt

    stopping = interrupt or Interrupt()
    is_part = stopping.is_taken  # of another run, whose limits hold for all of it
    if not is_part:
        stopping.on_request = partial(_tell_request, telemetry)
    found = resolved(recipe, config, given, telemetry, stopping)
    settings = found.context.folder.config
    telemetry.choose(found.config.metrics, [settings[name] for name in _NAMING_METRICS if settings.get(name)])
    if (taken := defaults_taken(found.config)) is not None:
        telemetry.event(events.RUN_DEFAULTS, text=taken)
    telemetry.notes([*unread_defaults(found.config), *_replaced(found.config, given)])
    with settling(found.context.folder.path):  # when no process writes there any more
        return await _run_connected(found, given, telemetry, stopping, process, is_part=is_part)


async def _run_connected(
    found: Resolved,
    given: Adapters,
    telemetry: "Telemetry",
    stopping: "Interrupt",
    process: "ServerProcess | None",
    *,
    is_part: bool,
) -> "RunResult[Any]":
    from cookhouse.runs import record_failure
    from cookhouse.service.connection import check_service
    from cookhouse.sweeps.record import write_page
    from cookhouse.workflows import run_workflow

    if found.is_connecting:
        check_service(found.address)
    begun_at = datetime.now(UTC)
    workflow, context = found.workflow, found.context
    is_shown = found.config.view and not is_part
    command = f"{given.program or 'cookhouse'} view {shlex.quote(str(context.folder.path))}"
    page = PageBeside(context.folder.path, partial(_tell_page, telemetry, command)) if is_shown else nullcontext()
    try:
        with page, stopping.on_signals(), stopping.after(None if is_part else found.config.max_minutes):
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
        if not _has_opened(context, begun_at):
            raise
        if isinstance(error, Exception):
            record_failure(context.folder.path, error, write_page)
        for note in _how_to_resume(context, given.program or "cookhouse"):
            error.add_note(note)
        raise


def _has_opened(context: "RunContext", since: datetime) -> bool:
    """True if the folder holds this run, and not the one that it was to replace."""
    from cookhouse.runs import FolderChoice, read_launches

    if context.choice is not FolderChoice.DELETE:
        return True
    launches = read_launches(context.folder.path)
    return bool(launches) and launches[-1].started_at >= since


def _tell_request(telemetry: "Telemetry", reason: str | None) -> None:
    from cookhouse.telemetry import events

    if reason is None:
        telemetry.event(events.RUN_INTERRUPT)
    else:
        telemetry.event(events.RUN_ENDS, text=reason)


def _tell_page(telemetry: "Telemetry", command: str, address: str, problem: str) -> None:
    """To the person at the terminal alone: the address has a token."""
    from cookhouse.telemetry import tell

    text = (
        f"page: {address} (as long as the run goes)"
        if address
        else f"page: open it with {command}; not served: {problem}"
    )
    if not telemetry.tell(text):
        tell(text)


@checked
def dry_run(
    recipe: Recipe[C] | str, config: C | Mapping[str, Any] | None = None, *, adapters: GivenAdapters = None
) -> "RunPlan":
    """Plan of a run: paths, tokens, truncation, steps, memory. Opens no session, and makes no folder.

    It resolves what a run resolves before it opens one, with the same `adapters`, and refuses in the same words. It
    blocks, and is not to be called inside an event loop.

    Raises:
        InputError: as `run` would.
    """
    from cookhouse.telemetry import Telemetry
    from cookhouse.training import Interrupt
    from cookhouse.workflows import dry_run_workflow

    # Whether a folder that exists may be used is checked; what would be asked about it is left to the run.
    given = replace(given_adapters(adapters), ask=lambda _: "delete")
    with nullcontext() if given.hub is None else hub_in_use(given.hub):
        settled = make_config(recipe_named(recipe), config, given.service)
        check_pair_loss(settled, given.service)
        check_model(settled, given.service)
        settled, prices = priced(settled, given.service)
        found = resolved(recipe, settled, given, Telemetry(), Interrupt())
        plan = asyncio.run(dry_run_workflow(found.workflow, found.context))
        unchecked = _check_base_models(found)
    changed = {name: value for name, value in plan.config.items() if not has_default(found.config, name)}
    changed.pop("log_path", None)  # the plan's folder
    notes = [*plan.notes, *unread_defaults(found.config), *_replaced(found.config, given), *unchecked]
    plan = replace(plan, changed=changed, notes=notes)
    decided = [name for name, value in plan.config.items() if value != getattr(found.config, name)]
    taken = defaults_taken(found.config, without=decided)
    more = {"prices": prices, "defaults": taken}
    return replace(plan, facts={**plan.facts, **{name: text for name, text in more.items() if text is not None}})


def _replaced(config: RunSettings, given: Adapters) -> list[str]:
    """Sentences about settings in whose place an adapter is."""
    is_there = {
        "base_url": callable(given.service),
        "service_patience_seconds": callable(given.service),
        "teacher_base_url": given.teacher is not None,
        "registry": given.registry is not None,
    }
    known = chz.chz_fields(config)
    return [
        f"{name}={in_words(getattr(config, name))} changes nothing: an adapter is in its place"
        for name, is_replaced in is_there.items()
        if is_replaced and name in known and not has_default(config, name)
    ]


def _early_server(given: Adapters, config: RunSettings) -> "AbstractAsyncContextManager[ServerProcess | None]":
    """The process of the local engine, if a run with these is to have one; whether it needs it is not known yet."""
    from cookhouse.service.connection import chosen_service, early_server

    if callable(given.service) or not has_engine():
        return nullcontext()
    return early_server(chosen_service(given.service, os.environ, config.base_url))


def _connection(
    run: Resolved, interrupt: "Interrupt", telemetry: "Telemetry", process: "ServerProcess | None"
) -> "AbstractAsyncContextManager[Connection]":
    from cookhouse.service.connection import open_connection

    config, adapters, address = run.config, run.context.adapters, run.address
    configs, folder = (config, *run.recipe.parts(config)), run_folder(config)
    return open_connection(
        address,
        base_models=base_models_of(configs, adapters.ports),
        state_dir=service_folder(folder),
        read_state_dirs=() if address is not None else _other_state_dirs(configs, folder, adapters.registry),
        peft_folders=_peft_folders(configs),
        patience_seconds=config.service_patience_seconds,
        interrupt=interrupt,
        telemetry=telemetry,
        is_chosen=adapters.service is not None,
        process=process,
    )


def _check_base_models(run: Resolved) -> list[str]:
    """Refuse models that the run's own service would not load, where it is to have one; a sentence where the engine is
    not installed, which tells.
    """
    from cookhouse.service.offer import check_models

    if not run.is_connecting or run.address is not None:
        return []
    if not has_engine():
        return [f"the base model is not checked, since the engine is not installed: {install_command('engine')}"]
    check_models(base_models_of((run.config, *run.recipe.parts(run.config)), run.context.adapters.ports))
    return []


def _peft_folders(configs: Sequence[RunSettings]) -> list[Path]:
    named = [find_weights(named.name) for config in configs for named in named_weights(config)]
    return [weights.folder for weights in named if isinstance(weights, PeftWeights)]


def _other_state_dirs(configs: Sequence[RunSettings], folder: Path, registry: "ModelRegistry | None") -> Sequence[Path]:
    """State folders in which embedded services keep the weights that configs name, if other runs on this machine saved
    them.
    """
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
