"""`cookhouse cluster`: what the workers of a server do, one more of them, one less."""

import json
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from cookhouse.cli.help import ListsByDefault
from cookhouse.cli.run import program
from cookhouse.errors import InputError

if TYPE_CHECKING:
    from cookhouse.cli.cluster.operator import Operator

_LOOK_SECONDS = 1.0

cluster_app = typer.Typer(
    cls=ListsByDefault,
    help="""List, watch, add and drain the workers of a server.

A worker is a process of `cookhouse serve --workers N` that trains, samples or both. Any key of the server sees them;
its first one adds and drains.""",
    rich_markup_mode=None,
)

BaseUrl = Annotated[str | None, typer.Option(envvar="TINKER_BASE_URL", help="Address of the server.")]
ApiKey = Annotated[str | None, typer.Option(envvar="TINKER_API_KEY", help="A key of the server.")]


@cluster_app.command("list")
def list_(
    watch: Annotated[bool, typer.Option("--watch", help="Look again each second, until Ctrl-C.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="As a JSON list, for programs.")] = False,
    base_url: BaseUrl = None,
    api_key: ApiKey = None,
) -> None:
    """List the workers: what each does, and what it has to do.

    Weights are those published for sampling. The queue has what is with a worker and has no answer; a sample counts its
    prompt and as many tokens as it may become. Busy is the share of the last seconds that its turns took. Below the
    table stands what is wrong, in sentences.
    """
    if watch and as_json:
        raise InputError("--json is one look, and --watch is many; take one of them")
    server = _operator(base_url, api_key)
    if watch:
        _watch(server)
        return
    status = _with_utilization(server)
    if as_json:
        typer.echo(json.dumps(status["workers"], indent=1))
        return
    from cookhouse.cli.cluster.table import lines_of
    from cookhouse.telemetry import make_console, say

    console = make_console()
    for line in lines_of(status, console.width if console.is_terminal else None):
        say(console, line)


@cluster_app.command()
def add(
    kind: Annotated[
        Literal["worker", "trainer", "sampler"] | None,
        typer.Option(
            help="What it does: both, or one of the two where the server has these apart.",
            show_default="a worker, or a sampler where these are apart",
        ),
    ] = None,
    base_url: BaseUrl = None,
    api_key: ApiKey = None,
) -> None:
    """Start one more worker."""
    name = _operator(base_url, api_key).add(kind)["name"]
    typer.echo(f"{name} is being started, and given work once it is up; {program()} cluster --watch shows it")


@cluster_app.command()
def drain(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Of the worker, as the list has it.", show_default=False)],
    seconds: Annotated[float, typer.Option(min=0, help="How long its samples are waited for.")] = 60.0,
    base_url: BaseUrl = None,
    api_key: ApiKey = None,
) -> None:
    """Have a worker end, and others go on with what it has.

    It is given nothing new. Its models go on elsewhere, from the journal; its samples are drawn to their end, and what
    is left after --seconds is drawn again by others.
    """
    drained = _operator(base_url, api_key).drain(name, seconds)
    number = drained["num_models"]
    models = "" if not number else f"{number} model{'s' * (number > 1)} of it go{'es' * (number == 1)} on elsewhere; "
    typer.echo(f"{name} is leaving, in {seconds:g} s at most: {models}{program()} cluster --watch shows it")


def _operator(base_url: str | None, api_key: str | None) -> "Operator":
    from cookhouse.cli.cluster.operator import Operator  # loads httpx, for which nobody waits who asks for help

    return Operator(base_url, api_key)


def _with_utilization(server: "Operator") -> Mapping[str, Any]:
    """A status. The first look at a worker tells not how busy it is, the next one does."""
    status = server.status()
    if any(worker["is_up"] and worker["utilization"] is None for worker in status["workers"]):
        time.sleep(_LOOK_SECONDS)
        status = server.status()
    return status


def _watch(server: "Operator") -> None:
    """Show the workers for as long as somebody looks; also while the server is away."""
    from rich.live import Live
    from rich.text import Text

    from cookhouse.cli.cluster.operator import UnreachableError
    from cookhouse.cli.cluster.table import lines_of
    from cookhouse.printable import printable
    from cookhouse.telemetry import make_console

    console = make_console()
    with Live(console=console, auto_refresh=False) as live:
        while True:
            try:
                lines = lines_of(server.status(), console.width if console.is_terminal else None)
            except UnreachableError as error:
                lines = [f"{error}; trying again"]
            text = Text(printable("\n".join(lines), keep="\n"))
            if console.is_terminal:
                live.update(text, refresh=True)
            else:
                console.print(text, soft_wrap=True)
            time.sleep(_LOOK_SECONDS)
