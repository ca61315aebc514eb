"""`cookhouse cluster`: list, add and drain the workers of a server."""

import json
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from cookhouse.cli.help import ListsByDefault
from cookhouse.cli.run import program
from cookhouse.cli.tables import fitted
from cookhouse.errors import InputError
from cookhouse.runs.history.facts import duration

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


_HEADER = ("name", "node", "role", "state", "models", "weights", "queue", "busy", "memory", "GPU", "losses", "device")
_SPARE = ("weights", "GPU", "memory", "role")
_DEAR = ("losses", "models", "node")
"""Columns in the order in which they are left out where there is no room."""
_NONE = "-"


def lines_of(status: Mapping[str, Any], width: int | None) -> list[str]:
    """A table of at most `width` cells, what is wrong, in sentences, and what no worker has yet."""
    rows = [_row(worker) for worker in status["workers"]]
    lines, left_out = _table(rows, width)
    if left_out:
        lines.append(f"hidden columns: {', '.join(left_out)}; widen the terminal or use --json")
    return [*lines, *status["troubles"], *_servers(status["servers"]), _waiting(status["waiting"])]


def _servers(servers: Sequence[Mapping[str, Any]] | None) -> list[str]:
    """A line on the server that has answered, where several share the sessions: each has workers of its own."""
    if servers is None or len(servers) < 2:
        return []
    index = next((index for index, one in enumerate(servers) if one["is_this"]), None)
    if index is None:  # it has been dropped, and starts again
        return []
    which = f"server {index + 1} of {len(servers)}"
    others = [one["url"] for one in servers if not one["is_this"]]
    if None in others:
        return [f"{which}; the others have workers of their own, at addresses that its first key sees"]
    whose = "its" if len(others) == 1 else "their"
    return [f"{which}: {servers[index]['url']}; ask {' and '.join(others)} for {whose} workers"]


def _waiting(waiting: Mapping[str, int]) -> str:
    parts = (
        _number(waiting["num_training_requests"], "training request"),
        _number(waiting["num_samples"], "sample"),
        f"{_number(waiting['num_models'], 'model')} without a worker",
    )
    return f"waiting at the server: {', '.join(parts)}"


def _number(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'s' * (number != 1)}"


def _table(rows: Sequence[Sequence[str]], width: int | None) -> tuple[list[str], list[str]]:
    """Without Ray there are no nodes, and no column of them."""
    has_nodes = any(row[_HEADER.index("node")] != _NONE for row in rows)
    header, *kept = [
        [cell for name, cell in zip(_HEADER, row, strict=True) if has_nodes or name != "node"]
        for row in (_HEADER, *rows)
    ]
    dear = [name for name in _DEAR if name in header]
    return fitted(header, kept, width, cut="device", spare=_SPARE, dear=dear)


def _row(worker: Mapping[str, Any]) -> Sequence[str]:
    device = worker["device_memory"]
    return (
        worker["name"],
        worker["node"] or _NONE,
        ", ".join(word for word in ("trains", "samples") if worker[word]),
        _state(worker),
        f"{worker['num_models']:,}",
        f"{worker['num_snapshots']:,}",
        f"{worker['num_commands']:,} ({worker['num_tokens']:,} tokens)" if worker["num_commands"] else "0",
        _NONE if worker["utilization"] is None else f"{worker['utilization']:.0%}",
        _NONE if worker["memory_bytes"] is None else _size(worker["memory_bytes"]),
        _NONE if device is None else f"{_size(device['used_bytes'])} of {_size(device['total_bytes'])}",
        f"{worker['num_losses']:,}",
        worker["computes_on"] or _NONE,
    )


def _state(worker: Mapping[str, Any]) -> str:
    return f"up {duration(worker['up_seconds'])}" if worker["state"] == "up" else str(worker["state"])


def _size(num_bytes: int) -> str:
    return f"{num_bytes / 2**30:,.1f} GiB"
