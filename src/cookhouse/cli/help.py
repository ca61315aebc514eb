"""Layout of `--help`: options in groups, and of commands the whole first sentence."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from types import MappingProxyType
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

MOST_USED = "Most used"
OWN = "Of this recipe"
OTHER_NAMES = "Other names"
COMMAND = "Options of the command"
_FIRST = ("Arguments", MOST_USED, OWN)
_LAST = ("Run", OTHER_NAMES, COMMAND)

_WHOLE = 1000
"""Letters of a first sentence: all of it."""


@dataclass(frozen=True)
class ListedCommand:
    """Place of a command, and its line in the list of commands: the first sentence of its own help."""

    place: str
    """`module:NAME` of a function or of a `typer.Typer`, below `cookhouse.cli`."""
    summary: str


COMMANDS: Mapping[str, ListedCommand] = MappingProxyType(
    {
        "run": ListedCommand("run:run_app", "Run a recipe, with settings as flags or as key=value."),
        "recipes": ListedCommand(
            "recipes:recipes", "List the recipes: the built-in ones, and those of installed packages."
        ),
        "describe": ListedCommand(
            "recipes:describe",
            "Show a recipe's stages and its settings, each with its value and where that came from.",
        ),
        "chat": ListedCommand("chat.commands:chat", "Talk with a run, any other weights or a base model."),
        "sample": ListedCommand(
            "sample:sample",
            "Ask a run, any other weights or a base model once; `cookhouse chat` holds a conversation.",
        ),
        "eval": ListedCommand(
            "evaluate:eval_app",
            "Evaluation of a base model, a checkpoint or any other weights on benchmarks and tasks of Inspect AI.",
        ),
        "runs": ListedCommand("runs.commands:runs_app", "List, show, compare, resume and delete runs."),
        "view": ListedCommand(
            "view:view",
            "Show runs in a browser while they learn: curves that grow, rollouts, tokens, what the model says now.",
        ),
        "report": ListedCommand(
            "report_page:report",
            "Write report.html into the folder of a run: its curves, answers, checkpoints and settings on one page.",
        ),
        "checkpoints": ListedCommand(
            "checkpoints.commands:checkpoints_app", "List, inspect, export, push, import and delete checkpoints."
        ),
        "sweep": ListedCommand(
            "sweep:sweep",
            "Run a recipe with several settings, one after another or several at a time, and compare the runs.",
        ),
        "models": ListedCommand(
            "models.commands:models_app", "Registered models: versions under names, their stages, metrics and lineage."
        ),
        "serve": ListedCommand(
            "serve.command:serve_app", "Serve models for training and sampling until Ctrl-C, or while a command runs."
        ),
        "cluster": ListedCommand("cluster.commands:cluster_app", "List, watch, add and drain the workers of a server."),
        "render": ListedCommand(
            "render:render_app",
            "Show conversations as a model sees them, every token with its weight; or check a renderer.",
        ),
        "new": ListedCommand(
            "new:new",
            "Write a small working example of one kind, with its test.",
        ),
        "doctor": ListedCommand(
            "doctor:doctor", "Show what this machine has for training, what is missing, and how to get it."
        ),
    }
)
"""By name, in the order in which people come to need them."""


class GroupedCommand(TyperCommand):
    """A command whose options say by `rich_help_panel` which group of the help they stand in; COMMAND without it.

    `--help` has what most people set, of each the first sentence; `--help-all` has all.
    """

    def format_options(self, ctx: Any, formatter: Any) -> None:
        groups: dict[str, list[tuple[str, str]]] = {name: [] for name in _FIRST}
        for parameter in self.get_params(ctx):
            is_argument = parameter.param_type_name == "argument"
            group = "Arguments" if is_argument else getattr(parameter, "rich_help_panel", None) or COMMAND
            if (record := parameter.get_help_record(ctx)) is not None:
                groups.setdefault(group, []).append(record)
        last = {name: groups.pop(name, []) for name in _LAST}
        is_whole = ctx.meta.get(_HELP_ALL_KEY, False)
        for name, records in (groups | last).items():
            if records and (is_whole or name in (*_FIRST, COMMAND)):
                with formatter.section(name):
                    formatter.write_dl([(flags, text if is_whole else in_short(text)) for flags, text in records])
        num_left_out = sum(len(records) for name, records in (groups | last).items() if name not in (*_FIRST, COMMAND))
        if num_left_out and not is_whole:
            formatter.write_paragraph()
            formatter.write_text(f"{num_left_out} more settings: {ctx.command_path} --help-all")


def in_short(text: str) -> str:
    """The first sentence of an option's help, and of its default what holds first."""
    told, has_default, default = text.partition(" [default: ")
    sentence = told.partition(". ")[0].removesuffix(".") + "."
    first, has_more, _ = default.removesuffix("]").partition(", ")
    return f"{sentence} [default: {first}{', ...' if has_more else ''}]" if has_default else sentence


def _show_all(context: typer.Context, is_asked: bool) -> None:
    if is_asked:
        context.meta[_HELP_ALL_KEY] = True
        typer.echo(context.get_help())
        raise typer.Exit


_HELP_ALL_KEY = "cookhouse.help-all"
HELP_ALL_OPTION = typer.Option("--help-all", is_eager=True, callback=_show_all, help="Show all settings, and exit.")


class WholeSentences(TyperGroup):
    """A group whose help has of each command the whole first sentence, in as many lines as that takes."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """As the base class, but for the length."""
        commands = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        shown = [(name, command) for name, command in commands if command is not None and not command.hidden]
        with formatter.section("Commands"):
            formatter.write_dl([(name, command.get_short_help_str(_WHOLE)) for name, command in shown])


class ListsByDefault(WholeSentences):
    """A group of which no command means its `list`, with the same options."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        is_asked = ctx.resilient_parsing or (args and (not args[0].startswith("-") or args[0] in ("--help", "-h")))
        return super().parse_args(ctx, args if is_asked else ["list", *args])


class _Loaded(Mapping[str, Any]):
    """The commands by name, each made when it is asked for."""

    def __getitem__(self, name: str) -> Any:
        module, _, attribute = COMMANDS[name].place.partition(":")
        command = getattr(import_module(f"{__package__}.{module}"), attribute)
        app = typer.Typer(add_completion=False, rich_markup_mode=None)
        app.callback()(_nothing)  # with which it is a group, also of one command
        if not isinstance(command, typer.Typer):
            app.command(name)(command)
        elif len(command.registered_commands) == 1:
            app.registered_commands += command.registered_commands
        else:
            app.add_typer(command, name=name)
        return typer.main.get_group(app).commands[name]

    def __iter__(self) -> Iterator[str]:
        return iter(COMMANDS)

    def __len__(self) -> int:
        return len(COMMANDS)


def _nothing() -> None:
    pass


class LazyCommands(WholeSentences):
    """The group of `COMMANDS`, none of which is imported before it is asked for: to list them takes no time."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = _Loaded()  # type: ignore[assignment]

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002  the base class's signature
        return [*COMMANDS]

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002
        """As the base class, of the table alone."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, command.summary) for name, command in COMMANDS.items()])
