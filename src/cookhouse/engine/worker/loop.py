"""The loop that owns an engine: commands come in from any thread, turns are taken in one, events go out.

    submit ──► inbox ──► Turns ──► turn: one command, passes that run together, or one step of all samples
                 │                   │
      Forget ────┘ at once           └──► Work ──► engine; tell: what was spent, then what came of it

    Inspect ──► Status: at once, in the thread that asks

Nothing here waits or reads a clock of its own, so that the same loop runs in a thread, in a process, and simulated.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence

from cookhouse.engine.contract import (
    Command,
    Done,
    Event,
    Failed,
    Failure,
    Forget,
    Inspect,
    Lost,
    Pass,
    Room,
    Step,
    Up,
    WorkerOptions,
)
from cookhouse.engine.engine import Engine
from cookhouse.engine.worker.failing import failed
from cookhouse.engine.worker.saves import MakeWriter, thread_writer
from cookhouse.engine.worker.status import Status
from cookhouse.engine.worker.turns import Turn, Turns
from cookhouse.engine.worker.work import Work

_LEAST_SHARE = 1 / 16
"""Of what was free when it was reported last: a smaller change is not reported."""
_LOOK_SECONDS = 1.0
"""Between two looks, where nothing was done that takes memory for good, or gives it back: caches grow meanwhile."""
_log = logging.getLogger(__name__)
_TELL_SECONDS = 0.1
"""Interval at which usage is reported while nothing ends."""


class RoomWatch:
    """Lives in the thread of the engine."""

    def __init__(self, engine: Engine, clock: Callable[[], float]) -> None:
        self._engine = engine
        self._clock = clock
        self._looked_at = clock()
        self.told = engine.room()
        """The last one."""

    def look(self, turn: Turn | None, *, has_forgotten: bool) -> Room | None:
        """Room to be reported after a turn, or after something was forgotten; None: nothing has changed."""
        now = self._clock()
        if not (has_forgotten or _takes_memory(turn) or (turn is not None and now - self._looked_at >= _LOOK_SECONDS)):
            return None
        self._looked_at = now
        room, told = self._engine.room(), self.told
        is_same = abs(room.free_bytes - told.free_bytes) <= told.free_bytes * _LEAST_SHARE
        if is_same and room.base_models == told.base_models:
            return None
        self.told = room
        return room


def _takes_memory(turn: Turn | None) -> bool:
    """True if it takes memory for good, or loads a base model."""
    return turn is not None and turn.kind != "sample" and not isinstance(turn.commands[0], Pass | Step)


Tell = Callable[[Sequence[Event]], None]
"""Takes events, in order; from any thread."""


class Loop:
    """`tell` is called in the thread of `turn`, for saves in that of a writer; `wake` in any, when there is work."""

    def __init__(
        self,
        engine: Engine,
        options: WorkerOptions,
        *,
        tell: Tell,
        wake: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
        make_writer: MakeWriter = thread_writer,
    ) -> None:
        self._engine = engine
        self._tell = tell
        self._wake = wake
        self._clock = clock
        self._inbox: deque[Command] = deque()
        self._turns = Turns(max_pass_tokens=options.max_pass_tokens, deterministic=options.deterministic)
        self._work = Work(engine, options, tell=lambda event: tell([event]), wake=wake, make_writer=make_writer)
        self._status = Status(clock)
        self._told_at = clock()
        self._room = RoomWatch(engine, clock)
        self._has_forgotten = False
        """Whether something was freed since it was looked for room."""

    @property
    def room(self) -> Room:
        """Room, as it was reported last."""
        return self._room.told

    def submit(self, commands: Sequence[Command]) -> None:
        """Hand over commands, in order; from any thread, in which an `Inspect` is answered."""
        for command in commands:
            if isinstance(command, Inspect):
                self._tell([self._inspect(command)])
            else:
                self._inbox.append(command)
        self._wake()

    def turn(self) -> bool:
        """Take in what was submitted, and take one turn; False if there was nothing to do."""
        events = [*self._work.tidy(), *self._take_in()]
        turn = self._turns.next(can_sample=self._engine.has_samples(), is_held=self._work.is_held)
        if turn is not None:
            served = self._work.served(turn)
            with self._status.turn(turn, served) as taken:
                events += self._work.run(turn)
            seconds = taken.seconds
            self._turns.charge(turn, seconds)
            self._work.meter.charge(served, seconds)
        if (room := self._room.look(turn, has_forgotten=self._has_forgotten)) is not None:
            events.append(room)
        self._has_forgotten = False
        self._tell_all(events, is_idle=turn is None)
        return turn is not None

    def close(self) -> None:
        """Tell what was spent, and stop writing files. No turn may follow."""
        self._tell_all([], is_idle=True)
        self._work.close()

    def _inspect(self, command: Inspect) -> Event:
        try:
            return Done(command_id=command.command_id, output=self._status.of(self._engine.memory_use()))
        except Exception as error:  # whoever hands commands over goes on
            return failed(command.command_id, error)

    def _take_in(self) -> Iterator[Event]:
        while self._inbox:
            command = self._inbox.popleft()
            if isinstance(command, Forget):
                self._has_forgotten = True
                try:
                    yield from self._work.forget(command, self._turns)
                except Exception:
                    _log.exception("%s could not be carried out wholly", command)
            else:
                self._work.expect(command)
                self._turns.put(command)

    def _tell_all(self, events: Sequence[Event], *, is_idle: bool) -> None:
        now = self._clock()
        if is_idle or now - self._told_at >= _TELL_SECONDS:
            self._told_at = now
            spent = self._work.meter.take()
        else:
            spent = self._work.meter.take({event.command_id for event in events if isinstance(event, Done | Failed)})
        if told := ([spent] if spent else []) + list(events):
            self._tell(told)


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
        """Commands that came before there was an engine."""
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
