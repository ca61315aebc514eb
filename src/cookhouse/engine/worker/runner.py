"""A loop and the thread that it runs in, from the making of its engine to its end."""

import logging
import threading
from collections.abc import Callable, Sequence

from cookhouse.engine.contract import Command, Failure, Lost, Up, WorkerOptions
from cookhouse.engine.engine import Engine
from cookhouse.engine.worker.loop import Loop, Tell

_log = logging.getLogger(__name__)


class Runner:
    """`run` blocks its thread; commands and `stop` come from any other."""

    def __init__(self, make_engine: Callable[[], Engine], options: WorkerOptions, tell: Tell) -> None:
        """`tell` is called in the thread of `run`, and in those that write files."""
        self._make_engine = make_engine
        self._options = options
        self._tell = tell
        self._wake = threading.Condition()
        self._has_news = False
        self._is_stopping = False
        self._early: list[Command] = []
        """What came before there was an engine."""
        self._loop: Loop | None = None

    def submit(self, commands: Sequence[Command]) -> None:
        """Hand over commands, in order."""
        with self._wake:
            if self._loop is None:
                self._early.extend(commands)
            else:
                self._loop.submit(commands)

    def stop(self) -> None:
        """Have `run` return after its present turn."""
        with self._wake:
            self._is_stopping = True
            self._wake.notify()

    def run(self) -> None:
        """Make the engine, and take turns until `stop`. The last event is `Lost` if either fails."""
        try:
            loop = self._open()
        except BaseException as error:
            self._lose("the engine could not be made", error, is_new=True)
            return
        try:
            while not self._is_stopping:
                self._has_news = False
                if not loop.turn():
                    self._wait()
            loop.close()
        except BaseException as error:
            self._lose("its loop failed", error, is_new=False)

    def _open(self) -> Loop:
        engine = self._make_engine()
        loop = Loop(engine, self._options, tell=self._tell, wake=self._notify)
        up = Up(
            worker=self._options.worker,
            base_models=tuple(engine.base_models()),
            description=engine.describe(),
            room=loop.room,
        )
        self._tell([up])
        with self._wake:
            loop.submit(self._early)
            self._early.clear()
            self._loop = loop
        return loop

    def _wait(self) -> None:
        with self._wake:
            while not (self._has_news or self._is_stopping):
                self._wake.wait()

    def _notify(self) -> None:
        with self._wake:
            self._has_news = True
            self._wake.notify()

    def _lose(self, what: str, error: BaseException, *, is_new: bool) -> None:
        failure = Failure.of(error)
        if failure.blame == "server":
            _log.error("worker %s is lost: %s", self._options.worker, what, exc_info=error)
        reason = f"{what}: {failure.message}"
        self._tell([Lost(worker=self._options.worker, reason=reason, failure=failure if is_new else None)])
