"""The embedded server: a process of its own on loopback, started for one run and stopped with it.

    <state_dir>/lock         ══ locked ══►    handed to the server, so it stays locked until both are gone
    <state_dir>/api-key      ─────────────►   one key per folder: a later server knows the same owner of its checkpoints
    <state_dir>/server.log   ◄─────────────   what it writes to stderr

It starts the other half and imports none of it.
"""

import asyncio
import contextlib
import fcntl
import logging
import os
import secrets
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, MutableMapping, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING

from cookhouse.assets import resolve_model
from cookhouse.errors import InputError, ServiceError
from cookhouse.extras import has_engine
from cookhouse.models.hub import HubPart, current_hub
from cookhouse.models.names import plain_name
from cookhouse.runs.names import CONFIG_FILE
from cookhouse.service.process import SERVER_COMMAND, ServerProcess, started_server
from cookhouse.service.running import Deaths, LocalServer, Restarts, ServerStart

if TYPE_CHECKING:
    from cookhouse.server.storage.checkpoints.checkpoint import StoredCheckpoint

LOOPBACK = "127.0.0.1"
_LOCK_PATIENCE_SECONDS = 20.0

_log = logging.getLogger(__name__)


def service_folder(run_folder: Path) -> Path:
    """Folder in which the embedded service of a run keeps its state; a run that is a part of another has that one's."""
    own, whole = run_folder / "service", run_folder.parent / "service"
    is_part = (run_folder.parent / CONFIG_FILE).is_file() and whole.is_dir()
    return whole if is_part and not own.is_dir() else own


def stored_files(state_dir: Path, path: str) -> Path | None:
    """The folder in which a server on this machine keeps the weights at a `tinker://` path; None: it does not, or the
    engine is not installed, which reads that.
    """
    return next((kept.folder for kept in _stored(state_dir) if kept.row.path == path), None)


def is_readable_state(state_dir: Path) -> bool:
    """True if another server of this user's can read the checkpoints there: not those of another version, nor those of
    another user.
    """
    if not keeps_checkpoints(state_dir) or state_dir.stat().st_uid != os.geteuid():
        return False
    try:
        _stored(state_dir)
    except (InputError, OSError):
        return False
    return True


def default_state_dir(environ: Mapping[str, str]) -> Path:
    """Folder in which a service keeps its state when none is named.

    Raises:
        InputError: the user has no home.
    """
    root = environ.get("XDG_STATE_HOME")
    try:
        return (Path(root) if root else Path.home() / ".local" / "state") / "cookhouse" / "serve"
    except RuntimeError as error:  # neither HOME nor an entry among the users
        raise InputError("this user has no home to keep the server's state in; pass --state-dir") from error


def stored_base_model(path: str) -> str | None:
    """The base model of the weights at a `tinker://` path that lie there; None: they do not, or the engine is not
    installed, which reads that.
    """
    kept = _stored(default_state_dir(os.environ))
    return next((each.row.base_model for each in kept if each.row.path == path), None)


def keeps_checkpoints(state_dir: Path) -> bool:
    """True if a server has kept its state here."""
    from cookhouse.server.storage.store.state_dir import is_state_dir

    return is_state_dir(state_dir)


def _stored(state_dir: Path) -> "Sequence[StoredCheckpoint]":
    if not keeps_checkpoints(state_dir) or not has_engine():
        return ()
    from cookhouse.server.storage.checkpoints.state_folder import stored_checkpoints

    return stored_checkpoints(state_dir)


@contextlib.asynccontextmanager
async def local_server(
    state_dir: Path,
    *,
    base_models: Sequence[str],
    host: str = LOOPBACK,
    port: int = 0,
    api_keys: Sequence[str] = (),
    read_state_dirs: Sequence[Path] = (),
    peft_folders: Sequence[Path] = (),
    database: str | None = None,
    command: Sequence[str] = SERVER_COMMAND,
    process: ServerProcess | None = None,
    is_shared: bool = False,
    say: Callable[[str], None] = _log.info,
    warn: Callable[[str], None] | None = None,
) -> AsyncIterator[LocalServer]:
    """Start a server that keeps its state in `state_dir`, wait until it answers, and stop it on leaving.

    Each of `base_models` is an embedded name, a hub id or a folder, or NAME=FOLDER to offer one by that name. A hub id
    is looked up in `cookhouse.models.hub.current_hub()`, which says what it downloads.
    It may load, and never changes, the checkpoints of the other servers that have their state in `read_state_dirs`, and
    the adapters in `peft_folders`. `database` is the URL of another than the one in `state_dir`.
    `process` is one that waits to be given what to serve; without, `command` starts one. `say` is given what a person
    may want to know while it starts, and later; `warn` what went wrong and is being mended, by default the same.
    `is_shared`: it has other clients than this process, whose sessions do not end with it, nor at its start.
    `port` 0 takes a free one, and without `api_keys` it has the one key of its folder. Meanwhile loopback is exempted
    from any HTTP proxy.

    Raises:
        InputError: the server refused what it was given, or another one holds `state_dir`.
        ServiceError: it died before it was ready.
    """
    with contextlib.ExitStack() as stack:
        lock = stack.enter_context(_open_lock(state_dir))
        await _acquire(lock, state_dir)
        keys = tuple(api_keys) or (folder_key(state_dir),)
        log = stack.enter_context(_private(state_dir / "server.log").open("ab"))
        stack.enter_context(_loopback_without_proxy(os.environ))
        models = [await asyncio.to_thread(_with_folder, base_model) for base_model in base_models]
        arguments = ["--host", host, "--state-dir", str(state_dir)]
        for base_model in models:
            arguments += ["--base-model", base_model]
        arguments += [word for folder in read_state_dirs for word in ("--read-state-dir", str(folder))]
        arguments += [word for folder in peft_folders for word in ("--peft-folder", str(folder))]
        arguments += [] if is_shared else ["--end-sessions", "eof"]
        first = [] if is_shared else ["--end-sessions", "start"]
        start = ServerStart(
            arguments=arguments,
            first=first,
            api_keys=keys,
            database=database,
            lock=lock,
            log=log,
            command=command,
            say=say,
            warn=warn or say,
        )
        async with _first(start, process, port) as (server, url, engine):
            try:
                yield LocalServer(start, server, url=url, engine=engine)
            finally:
                await asyncio.shield(server.stop())


@contextlib.asynccontextmanager
async def _first(
    start: ServerStart, given: ServerProcess | None, port: int
) -> AsyncIterator[tuple[ServerProcess, str, str | None]]:
    """A process that serves, with its URL and what it computes on; another one where it is killed before that.

    Raises:
        InputError: it refused what it was given.
        ServiceError: it failed by itself, or was killed too often.
    """
    restarts = Restarts()
    deaths = Deaths(restarts)
    async with contextlib.AsyncExitStack() as processes:
        server = await processes.enter_async_context(started_server(start.command)) if given is None else given
        while True:
            try:
                url, engine = await start.serve(server, port=port, is_first=True)
                break
            except ServiceError as error:
                if server.has_said_why:
                    raise
                if deaths.note(0.0):
                    raise ServiceError(
                        f"{error}\nit is not started again: it has died {restarts.max_deaths} times"
                    ) from error
                start.warn(f"{str(error).splitlines()[0]}; it is started again")
            await server.stop()
            server = await processes.enter_async_context(started_server(start.command))
        yield server, url, engine


def _with_folder(base_model: str) -> str:
    """A base model of a hub with the folder that it has been downloaded to; any other as it is."""
    source = resolve_model(base_model)
    is_here = Path(source).is_dir() or Path(source).is_absolute() or source.startswith((".", "~"))
    if "=" in base_model or is_here:
        return base_model
    return f"{plain_name(base_model)}={current_hub().download(source, HubPart.MODEL)}"


def _open_lock(state_dir: Path) -> IO[bytes]:
    state_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    return _private(state_dir / "lock").open("wb")


def _private(file: Path) -> Path:
    """A file that is there, and that none but its owner may read."""
    os.close(os.open(file, os.O_RDONLY | os.O_CREAT, 0o600))
    file.chmod(0o600)
    return file


async def _acquire(lock: IO[bytes], state_dir: Path) -> None:
    """Lock a state folder; waits a little, since the server of a client that was killed needs a moment to stop."""
    deadline = asyncio.get_running_loop().time() + _LOCK_PATIENCE_SECONDS
    while True:
        try:
            return fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            if asyncio.get_running_loop().time() > deadline:
                raise InputError(
                    f"{state_dir} is in use by another server; wait for its run to end, or choose another folder"
                ) from error
        await asyncio.sleep(0.1)  # flock cannot be awaited, and nothing else signals when it is free


def folder_key(state_dir: Path) -> str:
    """The key of a state folder, drawn at random the first time and readable by its owner only."""
    file = state_dir / "api-key"
    if file.exists() and (key := file.read_text().strip()):
        return key
    key = f"tml-{secrets.token_urlsafe(24)}"
    _private(file).write_text(f"{key}\n")
    return key


@contextlib.contextmanager
def _loopback_without_proxy(environ: MutableMapping[str, str]) -> Iterator[None]:
    """HTTP_PROXY would otherwise capture requests to 127.0.0.1, which then hang in retries."""
    names = ("NO_PROXY", "no_proxy")
    before = {name: environ.get(name) for name in names}
    for name in names:
        hosts = [host for host in (before[name] or "").split(",") if host]
        environ[name] = ",".join([*hosts, *(host for host in (LOOPBACK, "localhost") if host not in hosts)])
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                environ.pop(name, None)
            else:
                environ[name] = value
