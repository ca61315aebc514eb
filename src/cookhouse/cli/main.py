"""The `cookhouse` command: its subcommands, and what each kind of failure looks like.

Exit codes: 0 it worked; 1 the service or the run failed; 2 the input was bad (one line on stderr, no traceback);
75 max_minutes, another limit or SIGUSR1 ended the run at a step, and it can go on; 130 interrupted. Anything else that
escapes is a bug and shows its traceback.
"""

import errno
import sys
from collections.abc import Sequence
from typing import Annotated, Any, NoReturn

import typer

from cookhouse.cli.exit_codes import EXIT_BAD_INPUT, EXIT_FAILED, EXIT_INTERRUPTED
from cookhouse.cli.help import LazyCommands
from cookhouse.cli.home import with_home
from cookhouse.cli.streams import open_closed_streams
from cookhouse.cli.usage import usage_message
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
    """What to tell the user of an exception, and the exit code; no message for what only a bug can raise."""
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
