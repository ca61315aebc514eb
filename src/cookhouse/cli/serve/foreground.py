"""A server in the foreground: until Ctrl-C, or while a command runs."""

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from cookhouse.cli.exit_codes import EXIT_INTERRUPTED
from cookhouse.errors import InputError

if TYPE_CHECKING:
    from cookhouse.service.embedded import EmbeddedService


async def run_in_foreground(
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
