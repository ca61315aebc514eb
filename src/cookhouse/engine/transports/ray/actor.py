"""Actor of Ray that runs a worker, in a process of its own on some node.

Its own loop runs in a thread; the calls that Ray makes only hand things over. Ray keeps no order of calls, so those
that matter are numbered.
"""

import faulthandler
import logging
import os
import platform
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

from cookhouse.engine.contract import Event, Lost, WorkerOptions
from cookhouse.engine.transports.child_process import Feed, LogTeller, MakeRunning, encode_events
from cookhouse.engine.transports.messages import Pieces, decode_all
from cookhouse.engine.transports.ray.worker_files import OwnFolder, Sums, WorkerFiles
from cookhouse.errors import InputError
from cookhouse.version import __version__


class FrameBox:
    """Put in from any thread, taken by one. What comes while one is being sent goes with the next."""

    def __init__(self) -> None:
        self._wake = threading.Condition()
        self._pieces: Pieces = []
        self._is_closed = False

    def put(self, pieces: Sequence[memoryview]) -> None:
        with self._wake:
            if not self._is_closed:
                self._pieces += pieces
                self._wake.notify()

    def close(self) -> None:
        """Take nothing more; what is there can still be taken."""
        with self._wake:
            self._is_closed = True
            self._wake.notify()

    def take(self) -> Iterator[bytes]:
        """All frames that there are, joined, each time there are some; it ends when the box is closed and empty."""
        while True:
            with self._wake:
                self._wake.wait_for(lambda: self._pieces or self._is_closed)
                pieces, self._pieces = self._pieces, []
            if not pieces:
                return
            yield b"".join(pieces)


_T = TypeVar("_T")


class InOrder(Generic[_T]):
    """Values are numbered from 0. Each is given once, when all before it have been; a second of a number is dropped."""

    def __init__(self) -> None:
        self._next = 0
        self._early: dict[int, _T] = {}

    def put(self, number: int, value: _T) -> list[_T]:
        """Take one in; those whose turn has come, in order."""
        if number >= self._next:
            self._early.setdefault(number, value)
        ready = []
        while self._next in self._early:
            ready.append(self._early.pop(self._next))
            self._next += 1
        return ready


_FILES = "files"
"""Below a worker's folder: what `worker://` URLs name."""


class Place(NamedTuple):
    """Differences of a worker's node from the server's machine."""

    node: str
    """Its name, for messages."""
    is_here: bool
    """Whether it is the server's machine, so that the worker sees its folders."""
    working_folder: str
    """The server's."""
    model_folders: tuple[str, ...]
    """Base models that are folders on the server's machine, and must be there on the worker's."""


class WorkerActor:
    def __init__(self, num_threads: int, load: Callable[[], None], make: MakeRunning) -> None:
        """`load` imports what `make` needs, and is called before it."""
        os.environ.setdefault("OMP_NUM_THREADS", str(num_threads))  # read when torch is loaded
        faulthandler.enable()
        self._load = load
        self._make = make
        self._box = FrameBox()
        self._lock = threading.Lock()
        self._in_order: InOrder[bytes] = InOrder()
        self._feed = Feed()
        self._files: WorkerFiles | None = None
        self._own_folder: OwnFolder | None = None

    def versions(self) -> tuple[str, str]:
        """Of cookhouse and Python."""
        return __version__, platform.python_version()

    def begin(self, frame: bytes, place: tuple[Any, ...]) -> None:
        """Have it make its engine, with the options that a child of the server is given, and take commands."""
        ((options, engine_options),) = decode_all(frame)
        threading.Thread(target=self._run, args=(options, engine_options, Place(*place)), name="engine").start()

    def submit(self, number: int, frame: bytes) -> None:
        """Hand over commands, or None for the end. Numbers count from 0."""
        try:
            with self._lock:
                for ready in self._in_order.put(number, frame):
                    for message in decode_all(ready):
                        self._feed.put(message)
        except Exception as error:  # nobody waits for what this call returns
            self._fail(error)

    def events(self) -> Iterator[bytes]:
        """Frames of events until the last one. To be asked for once."""
        yield from self._box.take()

    def write(self, name: str, offset: int, part: bytes) -> None:
        """See `WorkerFiles`."""
        assert self._files is not None
        self._files.write(name, offset, part)

    def sums(self, name: str, part_bytes: int) -> dict[str, Sums]:
        """See `WorkerFiles`."""
        assert self._files is not None
        return self._files.sums(name, part_bytes)

    def read(self, name: str, offset: int, num_bytes: int) -> bytes:
        """See `WorkerFiles`."""
        assert self._files is not None
        return self._files.read(name, offset, num_bytes)

    def leave(self) -> None:
        """Delete what the server does not see, and end the process, whatever it does."""
        if self._own_folder is not None:
            self._own_folder.delete()
        os._exit(0)

    def _run(self, options: Mapping[str, Any], engine_options: Mapping[str, Any], place: Place) -> None:
        worker = WorkerOptions(**{**options, "folder": Path(options["folder"])})
        teller = LogTeller(self._tell)
        teller.setFormatter(logging.Formatter(f"node {place.node}: %(message)s"))
        logging.getLogger().addHandler(teller)
        try:
            _settle(place)
            if not place.is_here:
                self._own_folder = OwnFolder()
                worker = replace(worker, folder=self._own_folder.path / worker.worker)
            self._files = WorkerFiles(worker.folder / _FILES)
            self._load()
            running = self._make(worker, engine_options, self._tell)
            self._feed.start(running)
            running.run()
        except Exception as error:
            self._fail(error)
        self._box.close()

    def _fail(self, error: Exception) -> None:
        self._tell([Lost.by(error)])
        self._box.close()

    def _tell(self, events: Sequence[Event]) -> None:
        self._box.put(encode_events(events))


def _settle(place: Place) -> None:
    """Be in the folder that the server is in, if there is one, and see that its models are here.

    Raises:
        InputError: a base model is a folder that this node lacks.
    """
    if Path(place.working_folder).is_dir():
        os.chdir(place.working_folder)
    for name in place.model_folders:
        folder = Path(place.working_folder, name)
        if not folder.is_dir():
            raise InputError(
                f"node {place.node} has no folder {folder}, a base model that is to be served; copy it there under the "
                "same path, or mount it"
            )
