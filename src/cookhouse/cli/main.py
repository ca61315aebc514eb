"""The `cookhouse` command: its subcommands, and what each kind of failure looks like.

Exit codes: 0 it worked; 1 the service or the run failed; 2 the input was bad (one line on stderr, no traceback);
75 max_minutes, another limit or SIGUSR1 ended the run at a step, and it can go on; 130 interrupted. Anything else that
escapes is a bug and shows its traceback.
"""

import errno
import os
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from cookhouse.cli.exit_codes import EXIT_BAD_INPUT, EXIT_FAILED, EXIT_INTERRUPTED
from cookhouse.cli.help import LazyCommands
from cookhouse.cli.verbosity import LogLevel, Verbose, show_logs
from cookhouse.errors import BadRowsError, CookhouseError, InputError, NoServiceError, printable
from cookhouse.models.hub import HuggingFaceHub, hub_in_use
from cookhouse.version import __version__


class _Commands(LazyCommands):
    """Says how a recipe is run to whoever types its name, or that of an algorithm, as a command."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args[0] not in self.commands and not ctx.resilient_parsing:
            from cookhouse.cli.run import recipe_meant

            if (hint := recipe_meant(args[0])) is not None:
                raise InputError(hint)
        return super().resolve_command(ctx, args)


app = typer.Typer(
    cls=_Commands,
    name="cookhouse",
    help="Fine-tune language models by recipe, on a Tinker service or on this machine.",
    context_settings={"help_option_names": ["-h", "--help"]},
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


def _print_version(is_wanted: bool) -> None:
    if is_wanted:
        typer.echo(f"cookhouse {__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def _options(
    context: typer.Context,
    version: Annotated[  # noqa: ARG001  the callback uses it
        bool, typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True)
    ] = False,
    verbose: Verbose = False,  # noqa: ARG001  so do theirs
    log_level: LogLevel = None,  # noqa: ARG001
) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line on `arguments` (default: those of the process) and exit with its code."""
    open_closed_streams()
    try:
        show_logs()
        with hub_in_use(HuggingFaceHub(say=_tell)):
            words = with_home(sys.argv[1:] if arguments is None else arguments)
            code = app(args=words, prog_name="cookhouse", standalone_mode=False)
    except typer.Abort:
        sys.exit(EXIT_INTERRUPTED)
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)
    except Exception as error:
        message, code = _verdict(error)
        if message is None:
            raise
        _tell("error: " + printable(message, keep="\n"))
    sys.exit(code or 0)


def _tell(text: str) -> None:
    from cookhouse.telemetry import tell  # loads rich, for which nobody waits who asks for help

    tell(text)


def _verdict(error: Exception) -> tuple[str | None, int]:
    """Message for the user on an exception, and the exit code; no message for what only a bug can raise."""
    match error:
        case BadRowsError() | NoServiceError():
            notes = [note for note in getattr(error, "__notes__", ()) if not note.startswith("in stage ")]
            return "\n".join([str(error), *notes]), EXIT_BAD_INPUT
        case InputError():
            return " ".join(str(error).split()), EXIT_BAD_INPUT
        case CookhouseError():
            return "\n".join([str(error), *getattr(error, "__notes__", ())]), EXIT_FAILED
        case typer.TyperException():
            return usage_message(error), EXIT_BAD_INPUT
        case OSError(errno=errno.ENOSPC | errno.EDQUOT | errno.EFBIG):
            where = f" for {error.filename}" if error.filename else ""
            return f"no space left on the disk{where}; free some, or choose a folder elsewhere", EXIT_BAD_INPUT
        case OSError(filename=str() | bytes() as path, strerror=str() as reason):
            return f"{reason}: {path!r}", EXIT_BAD_INPUT
    return _service_verdict(error)


def _service_verdict(error: Exception) -> tuple[str | None, int]:
    """As `_verdict`, for the SDK's exceptions, which exist only if the SDK has been loaded."""
    tinker = sys.modules.get("tinker")
    if tinker is None or not isinstance(error, tinker.TinkerError):
        return None, EXIT_FAILED
    if isinstance(error, tinker.AuthenticationError):
        return f"the service refuses the key in TINKER_API_KEY: {error}", EXIT_BAD_INPUT
    return f"the service failed: {error}", EXIT_FAILED


_WITH_PROMPTS = ("sample",)
"""Commands of which a word may be any text."""


def with_home(words: Sequence[str]) -> list[str]:
    """The words, where `~` alone or before a `/` is the home in places, and in values of options; settings, as
    `log_path=~/runs`, are read where they are known.
    """
    is_place = not any(word in _WITH_PROMPTS for word in words[:1])
    begins = r"^(--[\w-]+=|)" if is_place else r"^(--(?!prompt)[\w-]+=)"
    return [re.sub(rf"{begins}~(?=/|$)", lambda found: found[1] + str(Path.home()), word) for word in words]


_NAMES = ("stdin", "stdout", "stderr")


def open_closed_streams() -> None:
    """Open the null device in the place of each: a file of ours would else have its number, and be written to."""
    for number, name in enumerate(_NAMES):
        try:
            os.fstat(number)
        except OSError:
            opened = os.open(os.devnull, os.O_RDWR)  # the lowest number that is free
            os.set_inheritable(opened, True)
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, "r" if number == 0 else "w", closefd=False, encoding="utf-8"))  # noqa: SIM115


_WANTED: Mapping[str, str] = {
    "int_parsing": "is no whole number",
    "int_from_float": "is no whole number",
    "float_parsing": "is no number",
    "bool_parsing": "is neither true nor false",
    "greater_than_equal": "is less than {ge}, the least allowed",
    "greater_than": "has to be more than {gt}",
    "less_than_equal": "is more than {le}, the most allowed",
    "less_than": "has to be less than {lt}",
}
"""Fault of a value, by the type of pydantic's error, which typer checks values with."""


def usage_message(error: typer.TyperException) -> str:
    """Message for the user on an error in the words of a command."""
    near = getattr(error, "possibilities", None)
    said = error.message if near else error.format_message()
    reason = _reason(error.__cause__)
    if reason is not None:
        said = said.removesuffix(error.message.rstrip(".")).removesuffix(error.message) + reason
    said = " ".join(said.split()).rstrip(".")
    return f"{said[:1].lower()}{said[1:]}" + (f"; did you mean {' or '.join(near)}?" if near else "")


def _reason(cause: Any) -> str | None:
    """Reason why a value is refused; None: that is no error of a value's check."""
    errors = getattr(cause, "errors", None)
    if not callable(errors):
        return None
    first = errors()[0]
    wanted = _WANTED.get(first["type"])
    if wanted is None:
        return str(first["msg"]).removeprefix("Value error, ")
    return f"{first['input']!r} {wanted.format(**first.get('ctx', {}))}"
