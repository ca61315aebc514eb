"""Running a recipe from Python; the command line is a thin layer over these two functions."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from cookhouse.errors import InputError
from cookhouse.local import service_folder
from cookhouse.recipes.recipe import Recipe, find_recipe
from cookhouse.recipes.training_config import WEIGHTS_FIELDS

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from cookhouse.connection import Connection
    from cookhouse.telemetry import Sink, Telemetry
    from cookhouse.training import Connect, Interrupt
    from cookhouse.workflows import DryRunReport, RunResult

AskWhatToDo = Callable[[str], str]
"""Given a question, returns delete, resume or raise; called only when the run folder exists and the config says ask."""


async def run(
    recipe: Recipe | str,
    config: Any = None,
    *,
    connect: Connect | None = None,
    sinks: Sequence[Sink] | None = None,
    ask: AskWhatToDo | None = None,
    program: str = "cookhouse",
) -> RunResult:
    """Run a recipe to its end, to an interrupt, or to an error.

    Args:
        recipe: the recipe, its name or an alias.
        config: an object of the recipe's config class; default: its defaults.
        connect: opens a connection to the training service; awaited once the data has been read; default: the service
            at `config.base_url` or in `TINKER_BASE_URL`, the hosted one if there is a key alone, and without either the
            embedded engine, started for this run.
        sinks: where telemetry goes besides the run folder; default: the terminal, with `TerminalSink`.
        ask: asks the user about an existing run folder; without it, `behavior_if_log_dir_exists=ask` is refused.
        program: how the user calls cookhouse, for the command that continues a run.

    The first Ctrl-C (SIGINT) or SIGTERM stops submitting, finishes what is in flight, saves, and returns a result whose
    `summary.is_interrupted` is set; the second raises `KeyboardInterrupt` at once.

    Raises:
        InputError: something in the config or the data cannot be used; nothing half-made is left behind.
        ServiceError: the training service failed, or has not answered for `service_patience_seconds`.

    What ends a run that can be continued carries the command that does so, in a note.
    """
    from cookhouse.telemetry import Telemetry, TerminalSink, make_console
    from cookhouse.training import Interrupt

    chosen = find_recipe(recipe) if isinstance(recipe, str) else recipe
    settled = chosen.resolve(chosen.config_class() if config is None else config)
    with Telemetry([TerminalSink(make_console())] if sinks is None else sinks) as telemetry:
        interrupt = Interrupt(on_request=lambda: telemetry.event("run.interrupt"))
        execute = partial(chosen.execute, settled, telemetry=telemetry, interrupt=interrupt, ask=ask)
        try:
            with interrupt.on_signals():
                if connect is not None:
                    return cast("RunResult", await execute(connect=connect))
                async with _connection(settled, interrupt, telemetry) as connection:
                    return cast("RunResult", await connection.guard(execute(connect=connection.connect)))
        except InputError:
            raise
        except (Exception, KeyboardInterrupt) as error:
            for note in _how_to_resume(chosen, Path(settled.log_path), program):
                error.add_note(note)
            raise


def _connection(config: Any, interrupt: Interrupt, telemetry: Telemetry) -> AbstractAsyncContextManager[Connection]:
    from cookhouse.connection import configured_service, open_connection

    address = configured_service(os.environ, config.base_url)
    folder = Path(config.log_path)
    return open_connection(
        address,
        model_name=config.model_name,
        state_dir=service_folder(folder),
        read_state_dirs=() if address is not None else _other_state_dirs(config, folder),
        patience_seconds=config.service_patience_seconds,
        interrupt=interrupt,
        telemetry=telemetry,
    )


def _other_state_dirs(config: Any, folder: Path) -> Sequence[Path]:
    """Where the embedded services keep the weights that a config names, if other runs on this machine saved them."""
    from cookhouse.training import run_that_saved

    named = [name for field in WEIGHTS_FIELDS if (name := getattr(config, field, None)) is not None]
    runs = [run_that_saved(name, among=(folder.parent, Path("runs"))) for name in named]
    kept = dict.fromkeys(service_folder(run) for run in runs if run is not None and run != folder)
    return [state_dir for state_dir in kept if state_dir.is_dir()]


def _how_to_resume(recipe: Recipe, folder: Path, program: str) -> list[str]:
    """The command that continues a run that broke, if it has saved anything."""
    checkpoints = folder / "checkpoints.jsonl"
    if not checkpoints.exists() or not checkpoints.stat().st_size:
        return []
    settings = f"log_path={shlex.quote(str(folder))} behavior_if_log_dir_exists=resume"
    return [f"its last checkpoint is kept; continue with:\n  {program} run {recipe.name} {settings}"]


def dry_run(recipe: Recipe | str, config: Any = None) -> DryRunReport:
    """What a run would do: paths, tokens, truncation, steps, memory. Makes no request and no folder.

    It blocks, and is not to be called inside an event loop.

    Raises:
        InputError: as `run` would.
    """
    chosen = find_recipe(recipe) if isinstance(recipe, str) else recipe
    report: DryRunReport = chosen.dry_run(chosen.config_class() if config is None else config)
    return report
