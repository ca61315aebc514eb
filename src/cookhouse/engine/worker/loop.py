"""The loop that owns an engine: commands come in from any thread, turns are taken in one, events go out.

    submit ──► inbox ──► Turns ──► turn: one command, passes that run together, or one step of all samples
                 │                   │
      Forget ────┘ at once           └──► Work ──► engine; tell: what was spent, then what came of it

    Inspect ──► Status: at once, in the thread that asks

Nothing here waits or reads a clock of its own, so that the same loop runs in a thread, in a process, and simulated.
"""

import logging
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence

from cookhouse.engine.contract import Command, Done, Event, Failed, Forget, Inspect, Room, WorkerOptions
from cookhouse.engine.engine import Engine
from cookhouse.engine.worker.failing import failed
from cookhouse.engine.worker.room import RoomWatch
from cookhouse.engine.worker.status import Status
from cookhouse.engine.worker.turns import Turns
from cookhouse.engine.worker.work import Work
from cookhouse.engine.worker.writers import MakeWriter, thread_writer

_log = logging.getLogger(__name__)
_TELL_SECONDS = 0.1
"""How often what was spent is told while nothing ends."""

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
        """What it has room for, as it was told last."""
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
