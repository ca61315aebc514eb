"""Files between the server's machine and a worker that does not see its folders.

Load, Fetch          the files are sent ahead, into a folder of the worker's own, and the command names that
Save, SaveSnapshot   the worker saves into a folder of its own; the files are brought here, and then it is done
"""

import itertools
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import ray

from cookhouse.engine.contract import (
    Account,
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
from cookhouse.engine.files.new_folder import new_folder
from cookhouse.engine.transports.child_process import Tell
from cookhouse.engine.transports.ray.object_cache import PART_BYTES, ObjectCache
from cookhouse.engine.transports.ray.ray_errors import cause_of, is_loss, said
from cookhouse.engine.transports.ray.worker_files import MAX_FILE_BYTES, Sums, checked_name
from cookhouse.engine.worker.folders import file_sizes, shared_folder
from cookhouse.errors import InputError

_MAX_UNDER_WAY = 2
"""Parts of a file that are on their way at a time: one is sent while the next is read."""


class Shipping:
    """`outward` is called in the thread that submits, or for files in one of several, but for one snapshot in one at a
    time; `inward` in the thread that reads events.
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
        """Held while a folder gets its name here and that is told."""
        self._is_abandoned = False
        self._writer = ThreadPoolExecutor(max_workers=1, thread_name_prefix="saves")
        self._numbers = itertools.count(1)
        """Of folders at the worker."""
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
        """Whether `outward` takes long: it sends files."""
        return isinstance(command, Load | Fetch) and shared_folder(command.url) is not None

    def outward(self, command: Command) -> Command:
        """The command as the worker can carry it out. Waits until its files are there."""
        match command:
            case Forget():
                return self._forgetting(command)
            case Sample():
                self._note_unfetched(command.command_id, command.request.snapshot_id or "")
            case SaveSnapshot():
                self._note_unfetched(command.command_id, command.snapshot_id)
        if not isinstance(command, Load | Fetch | Save | SaveSnapshot):
            return command
        here = shared_folder(command.url)
        if here is None:
            return command
        there = f"ray-{next(self._numbers)}"
        if isinstance(command, Save | SaveSnapshot):
            self._saves[command.command_id] = command, here, there
            return replace(command, url=self._url(there))
        if isinstance(command, Load):
            self._passing[command.command_id] = there
        else:
            self._fetch_anew(command, there)
        failure = self._send(here, there)
        if failure is None:
            return replace(command, url=self._url(there))
        self._unsent[command.command_id] = failure
        if isinstance(command, Fetch):
            self._unfetched[command.snapshot_id] = failure
        return replace(command, url=self._url(f"{there}-unsent"))  # which is not there: the worker fails it in its turn

    def inward(self, event: Event) -> Event | None:
        """The event as the server expects it; None: it is told later."""
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
        """Have no folder get its name here any more: whoever waits for it is about to be told that it does not come."""
        with self._landing:
            self._is_abandoned = True

    def _url(self, there: str) -> str:
        return f"worker://{self._worker}/{there}"

    def _forget(self, there: str) -> None:
        self._submit([Forget(command_id="", account=Account("", ""), urls=(self._url(there),))])

    def _fetch_anew(self, command: Fetch, there: str) -> None:
        """Note where a snapshot's files go; those that an earlier Fetch brought are read until this one is answered."""
        self._unfetched.pop(command.snapshot_id, None)
        earlier = self._fetches.pop(command.snapshot_id, None)
        if earlier is not None:
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

    def _send(self, here: Path, there: str) -> Failure | None:
        """Send a folder's files; why they could not be."""
        try:
            if not here.is_dir():
                raise DamagedError(f"there is no checkpoint {here}")
            sums = self._send_files(here, there)
            if ray.get(self._actor.sums.remote(there, PART_BYTES)) != sums:
                raise OSError(f"the files of {here} are not at the worker as they were sent")
        except (OSError, InputError) as error:  # an actor's, too: Ray raises what is both
            return Failure.of(cause_of(error))
        return None

    def _send_files(self, here: Path, there: str) -> dict[str, Sums]:
        """Send a folder's files; what they are by name."""
        under_way: deque[Any] = deque()
        sums: dict[str, Sums] = {name: [] for name in file_sizes(here)}
        for name, of_file in sums.items():
            for part in self._objects.parts(here / name):
                of_file.append(part.sums)
                under_way.append(self._actor.write.remote(f"{there}/{name}", part.offset, part.reference))
                if len(under_way) >= _MAX_UNDER_WAY:
                    ray.get(under_way.popleft())
        while under_way:
            ray.get(under_way.popleft())
        return sums

    def _bring(self, done: Done, command: Save | SaveSnapshot, here: Path, there: str) -> None:
        """Write here what the worker saved, and say that it is done. Runs in the writer's thread."""
        if self._is_abandoned:
            return
        try:
            with ExitStack() as landing:
                with new_folder(here) as folder:
                    assert isinstance(done.output, Saved)
                    for name, num_bytes in done.output.sizes.items():
                        self._bring_file(f"{there}/{name}", num_bytes, folder / checked_name(name))
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
            self._tell([Failed(command_id=done.command_id, failure=Failure.of(cause_of(error)))])
        self._forget(there)

    def _bring_file(self, name: str, num_bytes: int, path: Path) -> None:
        if num_bytes > MAX_FILE_BYTES:
            raise InputError(f"{name} has {num_bytes:,} bytes; a file may have {MAX_FILE_BYTES:,}")
        path.parent.mkdir(parents=True, exist_ok=True)
        offsets = deque(range(0, num_bytes, PART_BYTES))
        under_way: deque[Any] = deque()
        with path.open("wb") as file:
            while offsets or under_way:
                while offsets and len(under_way) < _MAX_UNDER_WAY:
                    under_way.append(self._actor.read.remote(name, offsets.popleft(), PART_BYTES))
                file.write(ray.get(under_way.popleft()))
        if path.stat().st_size != num_bytes:
            raise OSError(f"{name} came with {path.stat().st_size:,} bytes of {num_bytes:,}")


class _AbandonedError(Exception):
    """Nobody waits for a folder any more."""
