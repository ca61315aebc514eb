"""What `--help` shows, and in which order: options in groups, commands as people come to need them."""

from collections.abc import Sequence
from typing import Any

from typer.core import TyperCommand, TyperGroup

MOST_USED = "Most used"
OWN = "Of this recipe"
OTHER_NAMES = "Other names"
COMMAND = "Options of the command"
_FIRST = (MOST_USED, OWN)
_LAST = ("Run", OTHER_NAMES, COMMAND)

_WHOLE = 1000
"""Letters of a first sentence: all of it."""
COMMANDS = (
    *("run", "recipes", "describe", "chat", "sample", "eval", "runs", "view", "report", "checkpoints", "sweep"),
    *("models", "serve", "cluster", "render", "new", "doctor"),
)


class GroupedCommand(TyperCommand):
    """A command whose options say by `rich_help_panel` which group of the help they stand in; COMMAND without it."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        groups: dict[str, list[tuple[str, str]]] = {name: [] for name in ("Arguments", *_FIRST)}
        for parameter in self.get_params(ctx):
            is_argument = parameter.param_type_name == "argument"
            group = "Arguments" if is_argument else getattr(parameter, "rich_help_panel", None) or COMMAND
            if (record := parameter.get_help_record(ctx)) is not None:
                groups.setdefault(group, []).append(record)
        last = {name: groups.pop(name, []) for name in _LAST}
        for name, records in (groups | last).items():
            if records:
                with formatter.section(name):
                    formatter.write_dl(records)


class WholeSentences(TyperGroup):
    """A group whose help has of each command the whole first sentence, in as many lines as that takes."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """As the base class, but for the length."""
        commands = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        shown = [(name, command) for name, command in commands if command is not None and not command.hidden]
        with formatter.section("Commands"):
            formatter.write_dl([(name, command.get_short_help_str(_WHOLE)) for name, command in shown])


class OrderedCommands(WholeSentences):
    """One that lists the commands in the order of `COMMANDS`, and others after them."""

    def list_commands(self, ctx: Any) -> list[str]:
        names: Sequence[str] = super().list_commands(ctx)
        return [*(name for name in COMMANDS if name in names), *(name for name in names if name not in COMMANDS)]


class ListsByDefault(WholeSentences):
    """A group of which no command means its `list`, with the same options."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        is_asked = ctx.resilient_parsing or (args and (not args[0].startswith("-") or args[0] in ("--help", "-h")))
        return super().parse_args(ctx, args if is_asked else ["list", *args])
