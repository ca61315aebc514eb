"""`cookhouse cluster`: list, add and drain the workers of a server."""

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
its first one adds and drains. Without a command it lists: `cookhouse cluster --watch` is `cluster list --watch`, and so
with `--json`.""",
    rich_markup_mode=None,
)

BaseUrl = Annotated[str | None, typer.Option(envvar="TINKER_BASE_URL", help="Address of the server.")]
ApiKey = Annotated[str | None, typer.Option(envvar="TINKER_API_KEY", help="A key of the server.")]


@cluster_app.command("list")
def list_(
    watch: Annotated[bool, typer.Option("--watch", help="Refresh every second, until Ctrl-C.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="As a JSON list, for programs.")] = False,
    base_url: BaseUrl = None,
    api_key: ApiKey = None,
) -> None:
    """List workers with role, state, queue and utilization.

    Weights are those published for sampling. The queue is what a worker has and has not answered; a sample counts its
    prompt and its max_tokens. Busy is the share of the last seconds that its turns took. Below the table: what is
    wrong, and what waits at the server.
    """
    if watch and as_json:
        raise InputError("--json and --watch cannot be combined")
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
            help="Its role: both, or one of the two where the server separates them.",
            show_default="a worker, or a sampler where they are separate",
        ),
    ] = None,
    base_url: BaseUrl = None,
    api_key: ApiKey = None,
) -> None:
    """Start one more worker."""
    name = _operator(base_url, api_key).add(kind)["name"]
    typer.echo(f"starting {name}; it gets work once it is up; {program()} cluster --watch shows it")


@cluster_app.command()
def drain(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the worker, as listed.", show_default=False)],
    seconds: Annotated[float, typer.Option(min=0, help="Seconds to let running samples finish.")] = 60.0,
    base_url: BaseUrl = None,
    api_key: ApiKey = None,
) -> None:
    """Drain a worker: move its models to others, then stop it.

    It gets no new work. Its models are restored elsewhere from the journal. Its samples finish; those still running
    after --seconds are drawn again by others.
    """
    drained = _operator(base_url, api_key).drain(name, seconds)
    number = drained["num_models"]
    move = "1 model moves" if number == 1 else f"{number} models move"
    models = f"; {move} to other workers" if number else ""
    typer.echo(f"draining {name} (at most {seconds:g} s){models}; {program()} cluster --watch shows it")


def _operator(base_url: str | None, api_key: str | None) -> "Operator":
    from cookhouse.cli.cluster.operator import Operator  # loads httpx, for which nobody waits who asks for help

    return Operator(base_url, api_key)


def _with_utilization(server: "Operator") -> Mapping[str, Any]:
    """A status. The first answer of a worker does not tell its utilization, the next one does."""
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
    from cookhouse.errors import printable
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
