"""The service to sample from: the configured one, or an embedded engine that stays while what is sampled changes."""

import asyncio
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from cookhouse.adapters import ServiceAddress
from cookhouse.assets import TINY_MODEL, adapter_folders
from cookhouse.errors import InputError
from cookhouse.runs.names import RUNS_FOLDER
from cookhouse.sampling.chat_model import ChatModel, Draw
from cookhouse.sampling.target import Target
from cookhouse.service import connection
from cookhouse.service.connection import check_reachable, configured_service
from cookhouse.service.local import is_readable_state, local_server, service_folder

if TYPE_CHECKING:
    from cookhouse.service.process import ServerProcess
    from cookhouse.training import ServiceClient


@dataclass(frozen=True, kw_only=True)
class _Running:
    """An embedded engine."""

    address: ServiceAddress
    model: str
    state_dirs: Sequence[Path]
    """Whose checkpoints it can load."""
    peft_folders: Sequence[Path]
    """Whose adapters it can load, besides the embedded ones."""


class Engine:
    """Opens what is to be sampled, one target after another. Its embedded engine, if it needs one, is started for the
    first, and again only for another base model, a PEFT folder, or a run that was not there at the start.
    """

    def __init__(self, *, say: Callable[[str], None]) -> None:
        self._say = say
        self._stack = AsyncExitStack()
        self._running: _Running | None = None
        self._early: ServerProcess | None = None

    async def __aenter__(self) -> "Engine":
        """Start the process of the embedded engine, if no service is configured: it loads while we do."""
        self._early = await self._stack.enter_async_context(connection.early_server(configured_service(os.environ)))
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self._stack.aclose()

    async def chat_model(self, target: Target, draw: Draw) -> ChatModel:
        """A target, ready to answer.

        Raises:
            InputError: there are no such weights, or no such model.
            ServiceError: the service cannot be reached, or failed.
        """
        if target.note is not None:
            self._say(target.note)
        loading = asyncio.create_task(asyncio.to_thread(_load_libraries))
        try:
            address = await self._address(target)
        finally:
            await loading
        from cookhouse.training import connect_to, service_errors

        with service_errors("opening what is to be sampled"):
            service: ServiceClient = await connect_to(address.base_url, address.api_key)()
            return await ChatModel.open(service, target, draw, is_streamed=address.base_url is not None)

    async def _address(self, target: Target) -> ServiceAddress:
        address = configured_service(os.environ)
        if address is not None:
            await check_reachable(address)
            return address
        if self._running is None or not _has(self._running, target):
            self._running = await self._start(target)
        return self._running.address

    async def _start(self, target: Target) -> _Running:
        is_kept_here = target.state_dir is not None and target.state_dir.is_dir()
        if target.sampler_path is not None and target.adapter is None and not is_kept_here:
            raise InputError(
                f"{target.sampler_path} is not on this machine's embedded service; "
                "name the run that saved it, or set TINKER_BASE_URL and TINKER_API_KEY to the service that has it"
            )
        model = target.model_name or TINY_MODEL
        others = await asyncio.to_thread(lambda: list(_state_dirs(target)))
        adapters = [] if target.adapter is None else [target.adapter]
        self._say(f"starting the embedded engine with {model}")
        process, self._early = self._early, None
        async with AsyncExitStack() as stack:
            if process is not None:
                await stack.enter_async_context(self._stack.pop_all())  # what ends it goes where its engine does
            own = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="cookhouse-")))
            server = await stack.enter_async_context(
                local_server(
                    own,
                    base_models=[model],
                    read_state_dirs=others,
                    peft_folders=adapters,
                    process=process,
                    say=self._say,
                )
            )
            before, self._stack = self._stack, stack.pop_all()  # only now: the one before goes on if this one cannot
        await before.aclose()
        address = ServiceAddress(base_url=server.url, api_key=server.api_key)
        return _Running(address=address, model=model, state_dirs=others, peft_folders=adapters)


def _has(running: _Running, target: Target) -> bool:
    if target.adapter is not None:
        is_readable = target.adapter in (*adapter_folders(), *running.peft_folders)
    else:
        kept_in = None if target.state_dir is None else target.state_dir.resolve()
        is_readable = target.sampler_path is None or kept_in in running.state_dirs
    return running.model == (target.model_name or TINY_MODEL) and is_readable


def _state_dirs(target: Target) -> Iterator[Path]:
    """Of the service that has the target, and of the other runs here: the next target may be one of theirs."""
    from cookhouse.runs.listing.find import find_runs

    own = None if target.sampler_path is None or target.state_dir is None else target.state_dir.resolve()
    if own is not None:
        yield own
    for run in find_runs(RUNS_FOLDER):
        folder = service_folder(run.path).resolve()
        if folder != own and is_readable_state(folder):  # where it is not, nobody has asked for it yet
            yield folder


def _load_libraries() -> None:
    """Import what takes seconds to import, while the server does the same in its process."""
    import_module("cookhouse.training")
    import_module("transformers")
