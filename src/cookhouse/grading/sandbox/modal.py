"""Modal (https://modal.com) as a sandbox: a container without network for every program."""

import asyncio
import importlib
import math
import time
from typing import Any

from cookhouse.errors import InputError, ServiceError
from cookhouse.extras import install_command
from cookhouse.grading.sandbox.sandbox import Execution, ExecutionOutcome, Program, standalone_source

# The source comes first on standard input: command lines are limited to 64 KiB.
_BOOTSTRAP = (
    "import sys; size = int(sys.stdin.buffer.readline()); source = sys.stdin.buffer.read(size).decode(); "
    "exec(compile(source, 'main.py', 'exec'))"
)
_START_SECONDS = 60
_TIMED_OUT = -1  # how Modal reports a command that took too long


class ModalSandbox:
    """Programs run in containers of the app `app_name`, up to `max_concurrency` at a time.

    `image` is a `modal.Image`; None is Modal's default. Of `Limits`, time, memory and output hold here. Needs the
    extra `modal` and an account (`modal setup`). Belongs to one event loop.
    """

    def __init__(self, *, app_name: str = "cookhouse", image: Any = None, max_concurrency: int = 32) -> None:
        self._modal = _import_modal()
        self._app_name = app_name
        self._image = image
        self._app: Any = None
        self._turns = asyncio.Semaphore(max_concurrency)

    async def run(self, program: Program) -> Execution:
        """Run to the end; cancellation ends the container. Raises ServiceError if Modal cannot run anything."""
        async with self._turns:
            try:
                return await self._run(program)
            except self._modal.exception.Error as error:
                raise ServiceError(f"Modal could not run a program: {error}") from error

    async def aclose(self) -> None:
        """Nothing stays open between runs."""

    async def _run(self, program: Program) -> Execution:
        limits = program.limits
        if self._app is None:
            self._app = await self._modal.App.lookup.aio(self._app_name, create_if_missing=True)
        container = await self._modal.Sandbox.create.aio(
            app=self._app,
            image=self._image,
            timeout=math.ceil(limits.wall_seconds) + _START_SECONDS,
            memory=(128, max(128, limits.memory_bytes >> 20)),
            block_network=True,
        )
        try:
            start = time.monotonic()
            process = await container.exec.aio(
                "python", "-c", _BOOTSTRAP, timeout=math.ceil(limits.wall_seconds), text=False
            )
            source = standalone_source(program).encode()
            process.stdin.write(b"%d\n%b%b" % (len(source), source, program.stdin))
            process.stdin.write_eof()
            await process.stdin.drain.aio()
            (stdout, more_out), (stderr, more_err) = await asyncio.gather(
                _read(process.stdout, limits.output_bytes), _read(process.stderr, limits.output_bytes)
            )
            is_truncated = more_out or more_err
            status = None if is_truncated else await process.wait.aio()
            seconds = time.monotonic() - start
        finally:
            await container.terminate.aio()
        return Execution(
            outcome=ExecutionOutcome.OUTPUT if is_truncated else _outcome(status),
            status=None if status == _TIMED_OUT else status,
            stdout=stdout,
            stderr=stderr,
            seconds=seconds,
            is_truncated=is_truncated,
        )


async def _read(stream: Any, max_bytes: int) -> tuple[bytes, bool]:
    """Up to `max_bytes`, and whether there was more."""
    data = bytearray()
    async for part in stream:
        data += part
        if len(data) > max_bytes:
            return bytes(data[:max_bytes]), True
    return bytes(data), False


def _outcome(status: int | None) -> ExecutionOutcome:
    if status == _TIMED_OUT:
        return ExecutionOutcome.TIMEOUT
    if status == 0:
        return ExecutionOutcome.OK
    return ExecutionOutcome.KILLED if status is not None and status > 128 else ExecutionOutcome.NONZERO_EXIT


def _import_modal() -> Any:
    try:
        return importlib.import_module("modal")
    except ModuleNotFoundError as error:
        raise InputError(f"ModalSandbox needs the package modal: {install_command('modal')}") from error
