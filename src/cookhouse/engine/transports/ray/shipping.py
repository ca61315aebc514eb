"""Files between the server's machine and a worker that does not see its folders.

Load, Fetch          the files are sent ahead, into a folder of the worker's own, and the command names that
Save, SaveSnapshot   the worker saves into a folder of its own; the files are brought here, and then it is done
"""

import itertools
import os
import threading
import zlib
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import IO, Any, NamedTuple

import ray

from cookhouse.engine.contract import (
    Account,
    CanceledError,
    Command,
    DamagedError,
    Done,
    Event,
    Failed,
    Failure,
    Fetch,
    Forget,
    Load,
    Sample,
    Save,
    Saved,
    SaveSnapshot,
)
from cookhouse.engine.contract.urls import shared_folder
from cookhouse.engine.files.checksums import verify
from cookhouse.engine.files.new_folder import new_folder
from cookhouse.engine.transports.child_process import Tell
from cookhouse.engine.transports.ray.ray_errors import failure_of, is_loss, said
from cookhouse.engine.transports.ray.worker_files import MAX_FILE_BYTES, Sums, checked_name
from cookhouse.engine.worker.folders import file_sizes
from cookhouse.errors import InputError
from cookhouse.files import make_folder

PART_BYTES = 2**24
_MAX_UNDER_WAY = 2
"""Parts of a file that are on their way at a time: one is sent while the next is read."""
_Key = tuple[str, int, int, int]


class Part(NamedTuple):
    offset: int
    reference: Any
    """Of Ray's, to the bytes."""
    sums: tuple[int, int]
    """Number of bytes, and their CRC-32."""


class ObjectCache:
    """Parts of files, each put into Ray's object store once: Ray takes an object to a node once for all workers there.

    `max_bytes` of parts are kept for the next worker that asks; those asked for last.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_parts = max(1, max_bytes // PART_BYTES)
        self._lock = threading.Lock()
        self._parts: OrderedDict[_Key, Future[Part]] = OrderedDict()

    def parts(self, path: Path) -> Iterator[Part]:
        """A file's parts, at least one. From any thread.

        Raises:
            OSError: it cannot be read.
            RayError: the object store has no room.
        """
        with path.open("rb") as file:
            stat = os.fstat(file.fileno())
            for offset in range(0, max(1, stat.st_size), PART_BYTES):
                yield self._part((str(path), stat.st_ino, stat.st_mtime_ns, offset), file)

    def _part(self, key: _Key, file: IO[bytes]) -> Part:
        with self._lock:
            is_known = key in self._parts
            part = self._parts.setdefault(key, Future())
            self._parts.move_to_end(key)
            while len(self._parts) > self._max_parts:
                self._parts.popitem(last=False)
        if not is_known:  # read and put without the lock, so that nobody waits for another's file
            try:
                part.set_result(_put(file, key[-1]))
            except BaseException as error:
                with self._lock:
                    self._parts.pop(key, None)  # the next who asks tries again
                part.set_exception(error)
        return part.result()


def _put(file: IO[bytes], offset: int) -> Part:
    file.seek(offset)
    data = file.read(PART_BYTES)
    return Part(offset, ray.put(data), (len(data), zlib.crc32(data)))


def send_folder(actor: Any, objects: ObjectCache, here: Path, there: str, is_unwanted: threading.Event) -> None:
    """Send a folder's files to one of an actor's, and see that they are there as they were sent.

    Raises:
        CanceledError: meanwhile nobody wants them any more.
        DamagedError: there is no such folder.
        OSError: they cannot be read or written.
        RayError: the actor is out of reach, or Ray has no room for them.
    """
    if not here.is_dir():
        raise DamagedError(f"there is no checkpoint {here}")
    under_way: deque[Any] = deque()
    sums: dict[str, Sums] = {name: [] for name in file_sizes(here)}
    for name, of_file in sums.items():
        for part in objects.parts(here / name):
            if is_unwanted.is_set():
                raise CanceledError(f"the files of {here} are not wanted any more")
            of_file.append(part.sums)
            under_way.append(actor.write.remote(f"{there}/{name}", part.offset, part.reference))
            if len(under_way) >= _MAX_UNDER_WAY:
                ray.get(under_way.popleft())
    while under_way:
        ray.get(under_way.popleft())
    if ray.get(actor.sums.remote(there, PART_BYTES)) != sums:
        raise OSError(f"the files of {here} are not at the worker as they were sent")


def bring_files(actor: Any, there: str, sizes: Mapping[str, int], folder: Path) -> None:
    """Bring files of a folder of an actor's, whose sizes are known by name. Raises as `send_folder`, and InputError."""
    for name, num_bytes in sizes.items():
        _bring_file(actor, f"{there}/{name}", num_bytes, folder / checked_name(name))


def _bring_file(actor: Any, name: str, num_bytes: int, path: Path) -> None:
    if num_bytes > MAX_FILE_BYTES:
        raise InputError(f"{name} has {num_bytes:,} bytes; a file may have {MAX_FILE_BYTES:,}")
    make_folder(path.parent, exist_ok=True)
    offsets = deque(range(0, num_bytes, PART_BYTES))
    under_way: deque[Any] = deque()
    with path.open("wb") as file:
        while offsets or under_way:
            while offsets and len(under_way) < _MAX_UNDER_WAY:
                under_way.append(actor.read.remote(name, offsets.popleft(), PART_BYTES))
            file.write(ray.get(under_way.popleft()))
    if path.stat().st_size != num_bytes:
        raise OSError(f"{name} came with {path.stat().st_size:,} bytes of {num_bytes:,}")


class Shipping:
    """`carry` is called in any thread, `outward` and `discard` in the one that submits, `inward` in the one that reads
    events.
    """

    def __init__(
        self,
        actor: Any,
        objects: ObjectCache,
        worker: str,
        *,
        tell: Tell,
        submit: Callable[[Sequence[Command]], None],
        lose: Callable[[str], None],
    ) -> None:
        """`lose` is called with the reason where the worker is out of reach."""
        self._actor = actor
        self._objects = objects
        self._worker = worker
        self._tell = tell
        self._submit = submit
        self._lose = lose
        self._landing = threading.Lock()
        """Held while a folder gets its name here and that is reported."""
        self._is_abandoned = False
        self._writer = ThreadPoolExecutor(max_workers=1, thread_name_prefix="saves")
        self._numbers = itertools.count(1)
        """Of folders at the worker."""
        self._carried: dict[str, tuple[str, Failure | None]] = {}
        """By command that is not sent yet: the folder of its files at the worker, and why they are not there."""
        self._passing: dict[str, str] = {}
        """By command: a folder at the worker, not needed once it is answered."""
        self._fetches: dict[str, str] = {}
        """By snapshot: its folder at the worker, which may be read again until the snapshot is forgotten."""
        self._saves: dict[str, tuple[Save | SaveSnapshot, Path, str]] = {}
        """By command: where it is to be here, and its folder at the worker."""
        self._unsent: dict[str, Failure] = {}
        """By command: why its files, or those of its snapshot, could not be sent."""
        self._unfetched: dict[str, Failure] = {}
        """By snapshot: why its files could not be sent."""

    def needs_files(self, command: Command) -> bool:
        """True if it is to be carried, and then sent as `carry` gives it."""
        return isinstance(command, Load | Fetch) and shared_folder(command.url) is not None

    def carry(self, command: Load | Fetch, is_unwanted: threading.Event) -> Load | Fetch:
        """Send a command's files, unless nobody wants them any more; the command with the folder where they are.

        Raises:
            RayError: the worker is out of reach.
        """
        here = shared_folder(command.url)
        assert here is not None
        there = f"ray-{next(self._numbers)}"
        failure = None
        try:
            send_folder(self._actor, self._objects, here, there, is_unwanted)
        except Exception as error:
            if is_loss(error):
                raise
            failure = failure_of(error)
        self._carried[command.command_id] = there, failure
        # Without its files the worker is to fail it in its turn, and not to read a part of them.
        return replace(command, url=self._url(there if failure is None else f"{there}-unsent"))

    def discard(self, command: Load | Fetch) -> None:
        """Have the files of a command that was carried, and is not sent, deleted."""
        there, _ = self._carried.pop(command.command_id)
        self._forget(there)

    def outward(self, command: Command) -> Command:
        """The command as the worker can carry it out, just before it is sent."""
        match command:
            case Forget():
                return self._forgetting(command)
            case Load() | Fetch():
                if command.command_id in self._carried:
                    self._note_carried(command, *self._carried.pop(command.command_id))
                return command
            case Sample():
                self._note_unfetched(command.command_id, command.request.snapshot_id or "")
            case SaveSnapshot():
                self._note_unfetched(command.command_id, command.snapshot_id)
        if not isinstance(command, Save | SaveSnapshot):
            return command
        here = shared_folder(command.url)
        if here is None:
            return command
        there = f"ray-{next(self._numbers)}"
        self._saves[command.command_id] = command, here, there
        return replace(command, url=self._url(there))

    def inward(self, event: Event) -> Event | None:
        """The event as the server expects it; None: it is sent later."""
        if not isinstance(event, Done | Failed):
            return event
        if (there := self._passing.pop(event.command_id, None)) is not None:
            self._forget(there)
        save = self._saves.pop(event.command_id, None)
        failure = self._unsent.pop(event.command_id, None)
        if isinstance(event, Failed):
            return event if failure is None else replace(event, failure=failure)
        if save is not None:
            self._writer.submit(self._bring, event, *save)
            return None
        return event

    def close(self) -> None:
        """Write what has been saved, and nothing more."""
        self._writer.shutdown(wait=True)

    def abandon(self) -> None:
        """Have no folder get its name here any more: whoever waits for it is about to get the message that it does not
        come.
        """
        with self._landing:
            self._is_abandoned = True

    def _url(self, there: str) -> str:
        return f"worker://{self._worker}/{there}"

    def _forget(self, there: str) -> None:
        self._submit([Forget(command_id="", account=Account("", ""), urls=(self._url(there),))])

    def _note_carried(self, command: Load | Fetch, there: str, failure: Failure | None) -> None:
        """Note where a command's files are as long as they are read, and why they are not there, if so."""
        if failure is not None:
            self._unsent[command.command_id] = failure
        if isinstance(command, Load):
            self._passing[command.command_id] = there
            return
        self._unfetched.pop(command.snapshot_id, None)
        if failure is not None:
            self._unfetched[command.snapshot_id] = failure
        earlier = self._fetches.pop(command.snapshot_id, None)
        if earlier is not None:  # it is read until this command is answered
            self._passing[command.command_id] = earlier
        self._fetches[command.snapshot_id] = there

    def _forgetting(self, command: Forget) -> Forget:
        """With the folders of the snapshots that are forgotten."""
        for name in command.snapshot_ids:
            self._unfetched.pop(name, None)
        gone = [self._fetches.pop(name) for name in command.snapshot_ids if name in self._fetches]
        return replace(command, urls=(*command.urls, *map(self._url, gone)))

    def _note_unfetched(self, command_id: str, snapshot_id: str) -> None:
        """A command that wants weights which could not be sent fails as they did."""
        if snapshot_id in self._unfetched:
            self._unsent[command_id] = self._unfetched[snapshot_id]

    def _bring(self, done: Done, command: Save | SaveSnapshot, here: Path, there: str) -> None:
        """Write here what the worker saved, and say that it is done. Runs in the writer's thread."""
        if self._is_abandoned:
            return
        try:
            with ExitStack() as landing:
                with new_folder(here) as folder:
                    assert isinstance(done.output, Saved)
                    bring_files(self._actor, there, done.output.sizes, folder)
                    verify(folder, done.output.sha256)
                    landing.enter_context(self._landing)
                    if self._is_abandoned:
                        raise _AbandonedError
                self._tell([replace(done, output=replace(done.output, url=command.url))])
        except _AbandonedError:
            return
        except Exception as error:
            if is_loss(error):  # the save is to be done again, by another worker
                self._lose(f"what it saved cannot be brought: {said(error)}")
                return
            self._tell([Failed(command_id=done.command_id, failure=failure_of(error))])
        self._forget(there)


class _AbandonedError(Exception):
    """Nobody waits for a folder any more."""
