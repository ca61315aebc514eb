"""Commands on their way to an actor, in the order of `command_order`; files are sent ahead of those that need them."""

import contextlib
import queue
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import ray

from cookhouse.engine.contract import Command, Event, Failed, Fetch, Forget, Load
from cookhouse.engine.transports.child_process import Tell
from cookhouse.engine.transports.messages import encode
from cookhouse.engine.transports.ray.command_order import CommandOrder
from cookhouse.engine.transports.ray.ray_errors import NO_ROOM, failure_of
from cookhouse.engine.transports.ray.shipping import Shipping
from cookhouse.engine.worker.failing import canceled

_MAX_COMMANDS, _MAX_CARRIERS = 64, 3
"""Sent at a time; threads that send files."""


class _Arrived(NamedTuple):
    """Of a command whose files have been sent, or cannot be."""

    command: Load | Fetch


class Submitter:
    """`submit` and `end` from any thread; `run` is the sender's."""

    def __init__(self, tell: Tell, or_lost: Callable[[str], AbstractContextManager[None]]) -> None:
        """Whatever is raised within `or_lost` ends the worker."""
        self._tell = tell
        self._or_lost = or_lost
        self._outgoing: queue.SimpleQueue[Command | _Arrived | None] = queue.SimpleQueue()
        self._order = CommandOrder()
        self._unwanted: dict[str, threading.Event] = {}
        """By command whose files are being sent: set where it has been canceled."""
        self._num_sent = 0
        self._sent: deque[Any] = deque()
        """Calls that have not been seen to arrive."""
        self._is_up = threading.Event()
        self._is_over = threading.Event()
        self._actor: Any = None
        self._shipping: Shipping | None = None

    def submit(self, commands: Sequence[Command | None]) -> None:
        """Send commands; None is the last of all."""
        for command in commands:
            self._outgoing.put(command)

    def begin_files(self) -> None:
        """The actor has emptied its folder: files may be sent there."""
        self._is_up.set()

    def end(self) -> None:
        """Send nothing more."""
        self._is_over.set()
        self._is_up.set()
        self._outgoing.put(None)

    def run(self, actor: Any, shipping: Shipping | None) -> None:
        """Send until the last command has been, or the end."""
        self._actor, self._shipping = actor, shipping
        with ThreadPoolExecutor(_MAX_CARRIERS, "carrier") as carriers, self._or_lost("commands cannot be sent"):
            is_last = False
            while not is_last:
                for message in self._take_outgoing():
                    if isinstance(message, Forget):  # it cancels here what waits for files, and the rest at the worker
                        self._send_ready(carriers)
                    self._put(message)
                if self._is_over.is_set():
                    return
                is_last = self._send_ready(carriers)

    def check_sent(self) -> None:
        """Raise what a call raised: all that were sent after one that is lost wait for it, for ever."""
        sent = [self._sent.popleft() for _ in range(len(self._sent))]
        if sent:
            arrived, under_way = ray.wait(sent, num_returns=len(sent), timeout=0)
            self._sent.extend(under_way)
            ray.get(arrived)

    def _send_ready(self, carriers: ThreadPoolExecutor) -> bool:
        """Send what waits for nothing, and have files sent; whether the last command was among them."""
        ready, to_carry = self._order.take()
        for command in to_carry:
            self._unwanted[command.command_id] = threading.Event()
            carriers.submit(self._carry, command, self._unwanted[command.command_id])
        self._send(ready)
        return None in ready

    def _take_outgoing(self) -> list[Command | _Arrived | None]:
        """Take the items that are there; waits for at least one."""
        taken = [self._outgoing.get()]
        with contextlib.suppress(queue.Empty):
            while len(taken) < _MAX_COMMANDS:
                taken.append(self._outgoing.get_nowait())
        return taken

    def _put(self, message: Command | _Arrived | None) -> None:
        if isinstance(message, _Arrived):
            assert self._shipping is not None
            if self._unwanted.pop(message.command.command_id).is_set():
                self._shipping.discard(message.command)
            else:
                self._order.arrived(message.command)
            return
        if isinstance(message, Forget):
            self._cancel(self._order.drop(message))
        needs_files = self._shipping is not None and message is not None and self._shipping.needs_files(message)
        self._order.put(message, is_transfer=needs_files)

    def _cancel(self, commands: Sequence[Command]) -> None:
        """Tell commands that the worker never hears of of their end, and have no more of their files sent."""
        for command in commands:
            if command.command_id in self._unwanted:
                self._unwanted[command.command_id].set()
        if commands:
            self._tell([canceled(command.command_id) for command in commands])

    def _carry(self, command: Load | Fetch, is_unwanted: threading.Event) -> None:
        """Have a command's files sent, and then it. In a carrier's thread."""
        with self._or_lost("files cannot be sent"):
            self._is_up.wait()
            if self._shipping is not None and not self._is_over.is_set():
                self._outgoing.put(_Arrived(self._shipping.carry(command, is_unwanted)))

    def _send(self, commands: Sequence[Command | None]) -> None:
        """Send commands. Where Ray has no room for them they fail; what has no answer of its own goes without them."""
        outward = [
            each if each is None or self._shipping is None else self._shipping.outward(each) for each in commands
        ]
        try:
            self._send_frames(outward)
        except NO_ROOM as error:
            rest = [each for each in outward if each is None or isinstance(each, Forget)]
            self._fail([each for each in outward if each is not None and not isinstance(each, Forget)], error)
            self._send_frames(rest)

    def _send_frames(self, commands: Sequence[Command | None]) -> None:
        if commands:
            frames = b"".join(piece for command in commands for piece in encode(command))
            self._sent.append(self._actor.submit.remote(self._num_sent, frames))
            self._num_sent += 1

    def _fail(self, commands: Sequence[Command], error: Exception) -> None:
        for command in commands:
            event: Event | None = Failed(command_id=command.command_id, failure=failure_of(error))
            if self._shipping is not None and event is not None:
                event = self._shipping.inward(event)
            if event is not None:
                self._tell([event])
