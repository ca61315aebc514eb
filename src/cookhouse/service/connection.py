"""The training service of a run: one that the user configured, or the embedded one, started when it is first needed.

    Connection                 connect()                                guard(work) ends the work when
      configured service       checks that something answers            it has been silent for too long (`Watch`)
      embedded service         starts its process (`EmbeddedService`)   its process has died too often

The command line and Python both come through here.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from cookhouse.adapters import EmbeddedEngine, ServiceAddress
from cookhouse.errors import InputError, NoServiceError, ServiceError
from cookhouse.extras import has_engine, install_command
from cookhouse.service.embedded import EmbeddedService, guarded
from cookhouse.service.local import local_server
from cookhouse.service.process import ServerProcess, started_server

if TYPE_CHECKING:
    from cookhouse.telemetry import Telemetry
    from cookhouse.training import Interrupt, ServiceClient

_T = TypeVar("_T")


class Connection(Protocol):
    """The service of one run, not yet connected to."""

    async def connect(self) -> "ServiceClient":
        """Open a connection. Fits `cookhouse.training.Connect`.

        Raises:
            InputError: the service refused what it was given.
            ServiceError: it could not be reached, or did not start.
        """

    async def guard(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Await `work`, and cancel it if the service is gone meanwhile.

        Raises:
            ServiceError: it is gone; the message says how.
        """


@asynccontextmanager
async def early_server(address: ServiceAddress | None) -> AsyncIterator[ServerProcess | None]:
    """The process of the embedded service, to be given later what to serve; None where the service is at `address`.

    It imports its libraries while the caller does. Leaving stops it; if it was given nothing, it leaves no trace.
    """
    if address is not None:
        yield None
        return
    async with started_server() as process:
        yield process


@asynccontextmanager
async def open_connection(
    address: ServiceAddress | None,
    *,
    base_models: Sequence[str],
    state_dir: Path,
    read_state_dirs: Sequence[Path] = (),
    peft_folders: Sequence[Path] = (),
    patience_seconds: float,
    interrupt: "Interrupt",
    telemetry: "Telemetry",
    is_chosen: bool = False,
    process: ServerProcess | None = None,
) -> AsyncIterator[Connection]:
    """The connection of a run to `address`, or to an embedded service with its state in `state_dir` if that is None.

    The latter is served by `process`, else by one that is started when it is needed.
    The embedded one offers `base_models`, and may load the checkpoints of other embedded services, in
    `read_state_dirs`, and adapters, in `peft_folders`. `is_chosen`: it was asked for, and is not only what is left
    where nothing is configured.
    """
    if address is not None:
        yield _Configured(address, patience_seconds=patience_seconds, interrupt=interrupt, telemetry=telemetry)
        return

    def say(text: str) -> None:
        from cookhouse.telemetry import events

        telemetry.event(events.RUN_SERVICE, service=text)

    def warn(text: str) -> None:
        from cookhouse.telemetry import events

        telemetry.event(events.RUN_WARNING, text=text)

    service = EmbeddedService(
        lambda: local_server(
            state_dir,
            base_models=base_models,
            read_state_dirs=read_state_dirs,
            peft_folders=peft_folders,
            process=process,
            say=say,
            warn=warn,
        )
    )
    async with service:
        yield _Embedded(service, telemetry, is_chosen=is_chosen)


class _Embedded:
    def __init__(self, service: EmbeddedService, telemetry: "Telemetry", *, is_chosen: bool) -> None:
        self._service = service
        self._telemetry = telemetry
        self._is_chosen = is_chosen
        self._is_told = False

    async def connect(self) -> "ServiceClient":
        from cookhouse.telemetry import events
        from cookhouse.training import connect_to

        text = "running on this machine with the local engine"
        if not self._is_chosen:
            text = f"no TINKER_API_KEY or TINKER_BASE_URL: {text}"
        is_told, self._is_told = self._is_told, True  # once for all the runs that share it
        if not is_told:
            self._telemetry.event(events.RUN_SERVICE, service=text)
            self._telemetry.event(events.STAGE_PART, doing="starting the engine, loading the model")
        server = await self._service.start()
        if server.engine is not None and not is_told:
            self._telemetry.event(events.RUN_ENGINE, engine=f"the local engine: {server.engine}")
        return await connect_to(server.url, server.api_key)()

    async def guard(self, work: Coroutine[Any, Any, _T]) -> _T:
        return await self._service.guard(work)


class _Configured:
    def __init__(
        self, address: ServiceAddress, *, patience_seconds: float, interrupt: "Interrupt", telemetry: "Telemetry"
    ) -> None:
        self._address = address
        self._patience_seconds = patience_seconds
        self._interrupt = interrupt
        self._telemetry = telemetry
        self._is_connected = asyncio.Event()

    async def connect(self) -> "ServiceClient":
        from cookhouse.telemetry import events
        from cookhouse.training import connect_to

        place = self._address.base_url or "the hosted Tinker service"
        self._telemetry.event(events.RUN_SERVICE, service=f"training at {place}")
        await check_reachable(self._address)
        self._is_connected.set()
        return await connect_to(self._address.base_url, self._address.api_key)()

    async def guard(self, work: Coroutine[Any, Any, _T]) -> _T:
        watching = asyncio.ensure_future(self._watch())
        try:
            return await guarded(work, watching)
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)

    async def _watch(self) -> None:
        await self._is_connected.wait()
        from cookhouse.training import Watch

        watch = Watch(
            self._address.base_url,
            patience_seconds=self._patience_seconds,
            interrupt=self._interrupt,
            telemetry=self._telemetry,
        )
        await watch.until_gone()


def check_service(address: ServiceAddress | None) -> None:
    """Raises NoServiceError: the local engine is meant, and it is not installed."""
    if address is None and not has_engine():
        raise NoServiceError(
            "there is no engine here; set TINKER_API_KEY to use the hosted service, and TINKER_BASE_URL for another\n"
            f"  or compute on this machine: {install_command('engine')}"
        )


def chosen_service(
    choice: ServiceAddress | EmbeddedEngine | None, environ: Mapping[str, str], base_url: str | None = None
) -> ServiceAddress | None:
    """The service that adapters, settings and environment name between them; None: the local engine.

    Raises:
        InputError: as `configured_service`; or adapters and settings contradict each other, or there is no key.
    """
    if choice is None:
        return configured_service(environ, base_url)
    if isinstance(choice, EmbeddedEngine):
        if base_url is not None:
            raise InputError(f"the adapters choose the local engine, and base_url={base_url}; leave one of them out")
        return None
    if base_url is not None and choice.base_url not in (None, base_url):
        raise InputError(
            f"the adapters choose the service at {choice.base_url}, and base_url={base_url}; leave one out"
        )
    address = configured_service(environ, choice.base_url or base_url, choice.api_key)
    if address is None:
        raise InputError("no key for the hosted service; set TINKER_API_KEY, or give Adapters.hosted(api_key=...)")
    return address


def configured_service(
    environ: Mapping[str, str], base_url: str | None = None, api_key: str | None = None
) -> ServiceAddress | None:
    """The service that arguments or the environment name, or None when neither do: then the embedded one is meant.

    Raises:
        InputError: the key or the address cannot be one, or an address came without a key.
    """
    url = base_url or environ.get("TINKER_BASE_URL") or None
    key = api_key or environ.get("TINKER_API_KEY") or None
    if key is not None and not key.startswith(("tml-", "eyJ")):
        raise InputError(
            f"the API key starts with {key[:4]!r}; a key starts with 'tml-' (or 'eyJ' for a token): "
            "set TINKER_API_KEY to the one that the service gave you, or unset it to train on this machine"
        )
    if url is None and key is None and not environ.get("TINKER_CREDENTIAL_CMD"):
        return None
    if url is not None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise InputError(f"{url!r} is not the address of a service; give one such as http://127.0.0.1:8000")
        if key is None and not environ.get("TINKER_CREDENTIAL_CMD"):
            raise InputError(f"no key for the service at {url}; set TINKER_API_KEY to one that it accepts")
    return ServiceAddress(base_url=url, api_key=key)


async def check_reachable(address: ServiceAddress, patience_seconds: float = 5.0) -> None:
    """Open and close a connection to a service at a given address: the SDK itself would retry for minutes.

    Skipped for the hosted service and where a proxy stands between.

    Raises:
        ServiceError: nothing answers there.
    """
    if address.base_url is None:
        return
    parts = urlsplit(address.base_url)
    assert parts.hostname is not None
    if parts.scheme in getproxies() and not proxy_bypass(parts.hostname):
        return
    port = parts.port or (443 if parts.scheme == "https" else 80)
    try:
        async with asyncio.timeout(patience_seconds):
            _, writer = await asyncio.open_connection(parts.hostname, port)
    except TimeoutError as error:
        raise ServiceError(f"no service answers at {address.base_url} in {patience_seconds:.0f} s") from error
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror or str(error)
        raise ServiceError(f"no service answers at {address.base_url}: {reason}; see that it runs") from error
    writer.close()
    await writer.wait_closed()
