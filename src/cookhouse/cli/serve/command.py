"""`cookhouse serve`: its command line checked, and the server started by it."""

import asyncio
import contextlib
import inspect
import ipaddress
import os
import shlex
import signal
import socket
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperCommand

from cookhouse.assets import TINY_MODEL
from cookhouse.cli.exit_codes import EXIT_INTERRUPTED
from cookhouse.cli.runs.names import run_folder
from cookhouse.cli.serve.options import ServeOptions
from cookhouse.errors import InputError
from cookhouse.extras import require_engine
from cookhouse.models.names import parse_served
from cookhouse.server.leases.sharing import sharing_of
from cookhouse.service.local import default_state_dir, service_folder

if TYPE_CHECKING:
    from cookhouse.service.embedded import EmbeddedService

_PORT = 8000

serve_app = typer.Typer()


class ServeCommand(TyperCommand):
    """Takes `--ray` with and without an address behind it, which its parser cannot, and keeps the words as typed."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, [f"--started-as={shlex.join(args)}", *_with_address(args)])


def _with_address(words: Sequence[str]) -> list[str]:
    """The words of a command line, with `local` behind a `--ray` that has nothing of its own there."""
    end = words.index("--") if "--" in words else len(words)
    completed: list[str] = []
    for index, word in enumerate(words):
        completed.append(word)
        has_own = index + 1 < end and not words[index + 1].startswith("-")
        if word == "--ray" and index < end and not has_own:
            completed.append("local")
    return completed


def serve(**given: Any) -> None:
    """Serve models for training and sampling until Ctrl-C, or while a command runs.

    \b
      cookhouse serve
      cookhouse serve -- python train.py
      cookhouse serve -m Qwen/Qwen3-8B=cookhouse/tiny -- python train.py

    The last is for a script that names a model which is not here.
    NAME is asked for with a context suffix as well (NAME:peft:262144): the context is always the model's whole one.
    A sample ends at the model's own end tokens beside what a request names in `stop`; with an empty list it goes on to
    max_tokens.
    """  # noqa: D301  \b keeps lines as they are
    require_engine("cookhouse serve")
    options = ServeOptions(**given)
    state = options.state_dir or default_state_dir(os.environ)
    if options.backup is not None:
        _check_backup(state, options)
        _back_up(state, options.backup, options.journal, options.checkpoints)
    else:
        _serve(state, options)


# typer reads the options from here.
serve.__signature__ = inspect.signature(ServeOptions)  # type: ignore[attr-defined]
serve.__annotations__ = ServeOptions.__annotations__
serve_app.command(cls=ServeCommand)(serve)


def _serve(state: Path, options: ServeOptions) -> None:
    models = options.model or [TINY_MODEL]
    names = ", ".join(parse_served(models))
    keys = _parse_keys(options.api_key)
    port = _checked_port(keys, options)
    if options.shared_folder is not None:
        options = replace(options, shared_folder=options.shared_folder.absolute())
    words = options.words() + named_weights(options.run or [], options.registry)
    command = options.command or []
    if command and not keys:  # its one client is who typed this
        words.append(f"--started-as={options.started_as}")
    code = asyncio.run(
        _run_in_foreground(options.host, port, models, names, state, options.database, keys, command, words)
    )
    if command:
        raise typer.Exit(code)


def _checked_port(keys: Sequence[str], options: ServeOptions) -> int:
    """Raises InputError: these options do not go together, or the port is taken."""
    if not keys and not _is_loopback(options.host):
        raise InputError(f"--host {options.host} is open to other machines; give the keys to accept with --api-key")
    if options.command:
        _check_command(options.shared_folder, options.server_url)
    sharing_of(
        folder=options.shared_folder,
        url=options.server_url,
        database=options.database,
        api_keys=keys,
        journal=options.journal,
        samplers_only=options.samplers_only,
        end_sessions=[options.end_sessions] if options.end_sessions else (),
    )
    port = options.port if options.port is not None else 0 if options.command else _PORT
    _check_port_is_free(options.host, port)
    return port


def named_weights(runs: Sequence[str], registry: str | None) -> list[str]:
    """The server's options for weights by name, and for the folders where embedded services keep them.

    Raises:
        InputError: a run is not there or has saved nothing, or the registry cannot be read.
    """
    options: list[str] = []
    folders = [run_folder(run) for run in runs]
    if folders:
        from cookhouse.weights.names import find_weights
    for folder in folders:
        options += ["--run", f"{folder}={find_weights(str(folder)).path('sampling')}"]
    if registry is not None:
        from cookhouse.registry import Query, open_registry

        options += ["--registry", registry]
        versions = open_registry(registry, os.environ).find(Query())
        folders += [Path(version.run_folder) for version in versions if version.run_folder is not None]
    states = [service_folder(folder) for folder in dict.fromkeys(folder.absolute() for folder in folders)]
    return options + [word for state in states if state.is_dir() for word in ("--read-state-dir", str(state))]


def _parse_keys(text: str | None) -> tuple[str, ...]:
    keys = tuple(key.strip() for key in (text or "").split(",") if key.strip())
    for key in keys:
        if not key.startswith("tml-"):
            raise InputError(f"a key starts with {key[:4]!r}; the SDK sends only keys that start with 'tml-'")
    return keys


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _check_port_is_free(host: str, port: int) -> None:
    """Raises InputError where the server could not listen; it would find out only after loading the model."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as error:
        raise InputError(
            f"cannot listen on {host} port {port} ({error.strerror}); choose another with --port"
        ) from error


def _check_command(shared_folder: Path | None, server_url: str | None) -> None:
    """Raises InputError where a server that ends with a command would end sessions that others share."""
    if shared_folder is not None or server_url is not None:
        option = "--server-url" if shared_folder is None else "--shared-folder"
        raise InputError(
            f"a command beside the server is its only client, which goes with it, and {option} is for several servers "
            "and their clients; start the command by itself, with TINKER_BASE_URL and TINKER_API_KEY, or leave "
            f"{option} out"
        )


def _check_backup(state_dir: Path, options: ServeOptions) -> None:
    """Raises InputError: the options are not of a server whose state folder is all that there is."""
    if options.command:
        raise InputError("--backup serves nothing beside a command; give one of the two")
    if options.database is None and options.shared_folder is None:
        return
    servers = "the server" if options.shared_folder is None else "all of the servers, each of which writes to both"
    at = options.checkpoints
    bucket = "" if at is None else f"; the bucket at {at} has its own versions, or a copy"
    raise InputError(
        f"--backup copies a state folder with its server.db, and --database has the rows elsewhere; stop {servers}, "
        "and copy both: the database with pg_dump, "
        f"{options.shared_folder or state_dir} with rsync -a{bucket}"
    )


def _back_up(state_dir: Path, folder: Path, journal: str | None, checkpoints: str | None = None) -> None:
    """Copy a state folder, and say what the copy lacks. `journal` and `checkpoints` are as the server has them.

    Raises:
        InputError: there is no state folder, or the copy cannot be written.
        ServiceError: the database is damaged or locked, or files went faster than they could be copied.
    """
    from cookhouse.server.storage.backup.backup import back_up
    from cookhouse.server.storage.checkpoints.state_folder import CHECKPOINTS
    from cookhouse.telemetry import make_console, say

    tell = partial(say, make_console(stderr=True))
    remote = set() if checkpoints is None else {f"{CHECKPOINTS}/{one}" for one in _ids_at(checkpoints)}
    missing = back_up(state_dir, folder, journal=journal if journal and "://" in journal else None, say=tell)
    if elsewhere := [name for name in missing if name in remote]:
        tell(
            f"{len(elsewhere)} checkpoints lie at {checkpoints} and are not in the backup: what is deleted there is "
            "gone for it, too"
        )
    if lost := [name for name in missing if name not in remote]:
        tell(
            f"{state_dir} has lost what its database names, so that the backup lacks it, too: {', '.join(lost)}"
            + ("" if checkpoints else "; if its server has --checkpoints URL, give the same beside --backup")
        )
    again = f" --checkpoints {checkpoints}" if elsewhere else ""
    typer.echo(f"backed up {state_dir} to {folder}; to serve it: cookhouse serve --state-dir {folder}{again}")


def _ids_at(checkpoints: str) -> Collection[str]:
    """Of the checkpoints whose files are kept at a URL."""
    from cookhouse.server.storage.checkpoints.blob_files import BlobFiles, id_in

    return {id_in(name) for name in BlobFiles(checkpoints).found().files}


async def _run_in_foreground(
    host: str,
    port: int,
    models: Sequence[str],
    names: str,
    state_dir: Path,
    database: str | None,
    keys: tuple[str, ...],
    command: Sequence[str],
    options: Sequence[str],
) -> int:
    """The exit code of the command, if there is one."""
    from cookhouse.service.embedded import EmbeddedService
    from cookhouse.service.local import local_server
    from cookhouse.service.process import SERVER_COMMAND
    from cookhouse.telemetry import make_console, say

    echo = partial(say, make_console(stderr=bool(command)))  # what stands on stdout is then the command's alone
    echo(f"starting the engine with {names}; its state and its log (server.log) are in {state_dir}")
    async with EmbeddedService(
        lambda: local_server(
            state_dir,
            base_models=models,
            host=host,
            port=port,
            api_keys=keys,
            database=database,
            command=(*SERVER_COMMAND, *options),
            is_shared=not command,
            say=echo,
        )
    ) as service:
        stopping = asyncio.Event()
        work = _run_beside(service, command, keys, echo) if command else _announce(service, names, bool(keys), stopping)
        serving = asyncio.ensure_future(service.guard(work))

        def stop() -> None:
            if command or stopping.is_set() or not service.is_started:
                serving.cancel()
            stopping.set()

        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, stop)
        with contextlib.suppress(asyncio.CancelledError):
            return await serving
        echo("stopping")
    return EXIT_INTERRUPTED


async def _run_beside(
    service: "EmbeddedService", command: Sequence[str], keys: Sequence[str], echo: Callable[[str], None]
) -> int:
    """Run a command that finds the server in its environment; its exit code."""
    server = await service.start()
    if server.engine is not None:
        echo(f"computing on {server.engine}")
    key = keys[0] if keys else server.api_key
    found = {"TINKER_BASE_URL": server.url, "TINKER_API_KEY": key}
    found |= {"OPENAI_BASE_URL": f"{server.url}/v1", "OPENAI_API_KEY": key}
    try:
        process = await asyncio.create_subprocess_exec(*command, env={**os.environ, **found})
    except OSError as error:
        raise InputError(f"{command[0]!r} cannot be started: {error.strerror}; see that it is installed") from error
    try:
        return await process.wait()
    finally:
        if process.returncode is None:
            process.terminate()
            await process.wait()


async def _announce(service: "EmbeddedService", names: str, has_own_keys: bool, stopping: asyncio.Event) -> int:
    """Say where the server is once it answers; when it is to stop, wait until it has drained."""
    server = await service.start()
    key = "<a key that you gave>" if has_own_keys else server.api_key
    if server.engine is not None:
        typer.echo(f"computing on {server.engine}")
    typer.echo(f"serving {names} at {server.url}; Ctrl-C stops it. In another terminal:\n")
    typer.echo(f"  export TINKER_BASE_URL={server.url}")
    typer.echo(f"  export TINKER_API_KEY={key}\n")
    typer.echo(f"Programs that speak OpenAI's protocol find it at {server.url}/v1:\n")
    typer.echo(f"  export OPENAI_BASE_URL={server.url}/v1")
    typer.echo(f"  export OPENAI_API_KEY={key}\n")
    typer.echo(f"Its page, for a browser: {_page(server.url, None if has_own_keys else server.api_key)}\n")
    await stopping.wait()
    await service.drain()
    return EXIT_INTERRUPTED


def _page(url: str, key: str | None) -> str:
    """The address of the server's page. What stands behind the # no browser sends, and the page takes it out."""
    return f"{url}/page/" if key is None else f"{url}/page/#key={key}"
