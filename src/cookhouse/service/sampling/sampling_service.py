"""The service to sample from: the configured one, or a local engine that stays while what is sampled changes."""

import asyncio
import os
import tempfile
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from cookhouse.adapters import ServiceAddress
from cookhouse.assets import ADAPTER_FOLDERS, TINY_MODEL
from cookhouse.models.tokenizers import load_transformers
from cookhouse.naming import listed
from cookhouse.runs.names import RUNS_FOLDER
from cookhouse.service import connection
from cookhouse.service.connection import check_reachable, check_service, configured_service
from cookhouse.service.local import is_readable_state, local_server, service_folder
from cookhouse.service.sampling.chat_model import ChatModel, SamplingOptions
from cookhouse.service.sampling.target import Target

if TYPE_CHECKING:
    from cookhouse.service.process import ServerProcess
    from cookhouse.training import ServiceClient


@dataclass(frozen=True, kw_only=True)
class _Running:
    """A local engine."""

    address: ServiceAddress
    models: Collection[str]
    state_dirs: Sequence[Path]
    """Whose checkpoints it can load."""
    peft_folders: Sequence[Path]
    """Whose adapters it can load, besides the embedded ones."""


class SamplingService:
    """Opens what is to be sampled, one target after another or several at once. Its local engine, if it needs one,
    is started for the first, and again only for another base model, a PEFT folder, or a run that was not there at the
    start: what was opened before then answers no more.
    """

    def __init__(self, *, say: Callable[[str], None], place: Path = RUNS_FOLDER) -> None:
        """`place`: whose runs are named next, as far as anybody can tell."""
        self._say = say
        self._place = place
        self._stack = AsyncExitStack()
        self._running: _Running | None = None
        self._service: ServiceClient | None = None
        self._early: ServerProcess | None = None

    async def __aenter__(self) -> "SamplingService":
        """Start the process of the local engine, if no service is configured: it loads while we do."""
        address = configured_service(os.environ)
        check_service(address)
        self._early = await self._stack.enter_async_context(connection.early_server(address))
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self._stack.aclose()

    async def chat_model(self, target: Target, draw: SamplingOptions) -> ChatModel:
        """A target, ready to answer. Raises as `chat_models`."""
        return (await self.chat_models([target], draw))[0]

    async def chat_models(self, targets: Sequence[Target], draw: SamplingOptions) -> list[ChatModel]:
        """Targets, all ready to answer at the same time.

        Raises:
            InputError: there are no such weights, or no such model.
            ServiceError: the service cannot be reached, or failed.
        """
        for target in targets:
            if target.note is not None:
                self._say(target.note)
        loading = asyncio.create_task(asyncio.to_thread(_load_libraries))
        try:
            address = await self._address(targets)
        finally:
            await loading
        from cookhouse.training import connect_to, service_errors

        with service_errors("opening what is to be sampled"):
            if self._service is None:
                self._service = await connect_to(address.base_url, address.api_key)()
            is_streamed = address.base_url is not None
            return [await ChatModel.open(self._service, each, draw, is_streamed=is_streamed) for each in targets]

    def has(self, targets: Sequence[Target]) -> bool:
        """True if it can open them without starting anything, so that what was opened before goes on."""
        if configured_service(os.environ) is not None:
            return True
        return self._running is not None and all(_has(self._running, target) for target in targets)

    async def _address(self, targets: Sequence[Target]) -> ServiceAddress:
        address = configured_service(os.environ)
        if address is not None:
            await check_reachable(address)
            return address
        if self._running is None or not self.has(targets):
            self._running = await self._start(targets)
            self._service = None
        return self._running.address

    async def _start(self, targets: Sequence[Target]) -> _Running:
        for target in targets:
            target.check_kept_here()
        models = list(dict.fromkeys(target.model_name or TINY_MODEL for target in targets))
        others = await asyncio.to_thread(lambda: list(_state_dirs(targets, self._place)))
        adapters = [target.adapter for target in targets if target.adapter is not None]
        self._say(f"starting the local engine with {listed(models)}")
        process, self._early = self._early, None
        async with AsyncExitStack() as stack:
            if process is not None:
                await stack.enter_async_context(self._stack.pop_all())  # what ends it goes where its engine does
            own = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="cookhouse-")))
            server = await stack.enter_async_context(
                local_server(
                    own,
                    base_models=models,
                    read_state_dirs=others,
                    peft_folders=adapters,
                    process=process,
                    say=self._say,
                )
            )
            before, self._stack = self._stack, stack.pop_all()  # only now: the one before goes on if this one cannot
        await before.aclose()
        address = ServiceAddress(base_url=server.url, api_key=server.api_key)
        return _Running(address=address, models=models, state_dirs=others, peft_folders=adapters)


def _has(running: _Running, target: Target) -> bool:
    if target.adapter is not None:
        is_readable = target.adapter in (*ADAPTER_FOLDERS.values(), *running.peft_folders)
    else:
        kept_in = None if target.state_dir is None else target.state_dir.resolve()
        is_readable = target.sampler_path is None or kept_in in running.state_dirs
    return (target.model_name or TINY_MODEL) in running.models and is_readable


def _state_dirs(targets: Sequence[Target], place: Path) -> Iterator[Path]:
    """Of the services that have the targets, and of the other runs of a place: the next target may be one of theirs."""
    from cookhouse.runs.listing.find import find_runs

    kept_in = [each.state_dir for each in targets if each.sampler_path is not None and each.state_dir is not None]
    own = dict.fromkeys(folder.resolve() for folder in kept_in)
    yield from own
    for run in find_runs(place):
        folder = service_folder(run.path).resolve()
        if folder not in own and is_readable_state(folder):  # where it is not, nobody has asked for it yet
            yield folder


def _load_libraries() -> None:
    """Import what takes seconds to import, while the server does the same in its process."""
    import_module("cookhouse.training")
    load_transformers()
