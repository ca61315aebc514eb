"""`cookhouse run RECIPE`: from settings to a trained model, on whichever service is configured."""

import shlex
import shutil
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import typer

from cookhouse import recipes
from cookhouse.adapters import Adapters, make_adapters
from cookhouse.cli.exit_codes import EXIT_ENDED, EXIT_FAILED, EXIT_INTERRUPTED
from cookhouse.cli.help import GroupedCommand, WholeSentences
from cookhouse.cli.options import Layers, recipe_command
from cookhouse.cli.verbosity import is_verbose
from cookhouse.errors import InputError
from cookhouse.recipes import RECIPES, every_recipe, find_recipe, settle
from cookhouse.recipes.aliases import what_is_meant


class RecipeCommands(WholeSentences):
    """One subcommand per recipe, made from its config class when it is asked for."""

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002  the base class's signature
        return [recipe.name for recipe in every_recipe()]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name.startswith("-"):
            return None
        try:
            recipe = find_recipe(cmd_name)
        except InputError:
            if ctx.resilient_parsing:  # half a name, which the shell asks to complete
                return None
            raise
        app = typer.Typer(add_completion=False, rich_markup_mode=None)
        app.command(name=recipe.name, cls=GroupedCommand)(recipe_command(recipe, partial(run_recipe, cmd_name)))
        return typer.main.get_command(app)


run_app = typer.Typer(
    cls=RecipeCommands,
    help="Run a recipe, with settings as flags or as key=value.",
    invoke_without_command=True,
    rich_markup_mode=None,
)


@run_app.callback()
def _require_recipe(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        names = ", ".join(recipe.name for recipe in every_recipe())
        raise InputError(f"which recipe? name one of {names}, as in: cookhouse run supervised")


def recipe_meant(name: str) -> str | None:
    """Hint for a user who types the name of a recipe, or of an algorithm, as a command; None: it is neither."""
    if name in RECIPES.names():
        return f"{name} is a recipe: {program()} run {name}"
    hint = what_is_meant(name)
    return None if hint is None else f"there is no command {name}; {hint}"


def run_recipe(name: str, layers: Layers, dry_run: bool, adapters: str | None = None) -> None:
    """Run the recipe of a name, or show what it would do; with the ports that the adapters of a name fill.

    Raises:
        InputError: a setting, the adapters, the data or the run directory cannot be used.
        ServiceError: the training service failed.
        typer.Exit: the run was interrupted and saved, or it consists of others of which some failed.
    """
    given = None if adapters is None else make_adapters(adapters)
    config = settle(find_recipe(name), layers, None if given is None else given.service).config
    if dry_run:
        from cookhouse.cli import summary
        from cookhouse.telemetry import Telemetry, make_console

        with Telemetry(() if given is None else given.sinks or ()):  # which closes them: nothing is sent to them
            plan = recipes.dry_run(name, config, adapters=given)
            summary.print_plan(make_console(), plan, every_setting=is_verbose())
        return
    finish(name, config, ports_of(given, is_page_served=config.view))


def ports_of(given: Adapters | None, *, is_page_served: bool = False) -> Adapters:
    """The command line's ports, but for those that are given."""
    from cookhouse.cli import summary
    from cookhouse.telemetry import Sink, TerminalSink, make_console

    console = make_console()
    terminal = TerminalSink(console, program(), is_page_served=is_page_served, every_note=is_verbose())
    sinks: list[Sink] = [terminal, summary.PreviewSink(console)]
    ports = Adapters(sinks=sinks, ask=_ask if _has_user() else None, program=program())
    return ports if given is None else ports.overridden_by(given)


def finish(name: str, config: Any, ports: Adapters) -> None:
    """Run a recipe with a config, and say what came of it. Raises as `run_recipe`."""
    from cookhouse.cli import summary
    from cookhouse.cli.summary import print_failed_sweep, print_sweep
    from cookhouse.telemetry import make_console, tell

    console = make_console()
    try:
        result = recipes.run(name, config, adapters=ports)
    except KeyboardInterrupt as interrupt:
        tell("\n".join(["stopped", *getattr(interrupt, "__notes__", ())]))
        raise
    from cookhouse.sweeps.state import SweepState  # the SDK, which the run loads after it has started an engine

    if isinstance(result.state, SweepState) and result.state.has_failed:
        print_failed_sweep(console, result.state, ports.program or program())
        raise typer.Exit(EXIT_FAILED)
    summary.print_summary(console, result.summary, ports.program or program())
    if isinstance(result.state, SweepState):
        print_sweep(console, result.state.record)
    if result.summary.is_interrupted and not result.summary.is_paused:
        raise typer.Exit(EXIT_INTERRUPTED if result.summary.stopped is None else EXIT_ENDED)
    if result.state.context.error is not None:
        raise typer.Exit(EXIT_FAILED)


def program() -> str:
    """Words that start this program, as one types them: `cookhouse`, its path, or `python -m cookhouse`."""
    started = Path(sys.argv[0])
    if started.name != "cookhouse":
        is_found = shutil.which("python") == sys.executable
        return f"{'python' if is_found else shlex.quote(sys.executable)} -m cookhouse"
    if shutil.which("cookhouse") == str(started.absolute()):
        return "cookhouse"
    path = started.absolute()
    return shlex.quote(str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path))


@contextmanager
def _plain_interrupts() -> Iterator[None]:
    """Ctrl-C ends the body. A prompt blocks the event loop, whose own handler would act only after an answer."""
    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)


def _has_user() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty()


def _ask(question: str) -> str:
    """One of delete, resume and raise, typed by the user; a first letter is enough."""
    allowed = ("delete", "resume", "raise")
    while True:
        with _plain_interrupts():
            answer = str(typer.prompt(f"{question} [delete, resume or raise]")).strip().lower()
        chosen = [word for word in allowed if answer and word.startswith(answer)]
        if len(chosen) == 1:
            return chosen[0]
        typer.echo(f"{answer!r} is none of delete, resume and raise")
