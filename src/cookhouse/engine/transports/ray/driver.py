"""The process next to the server that is in Ray's cluster, for all its workers. It ends with the server, or Ray's head.

main thread     joins or starts the cluster, and then watches its head
workers         takes a socket for each worker; the end of what brings them ends the process
one a worker    its relay
"""

import contextlib
import faulthandler
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, Any

from cookhouse.engine.contract import Lost
from cookhouse.engine.transports.child_process import MakeRunning, Pipe
from cookhouse.engine.transports.messages import Receiver, Sender, encode
from cookhouse.engine.transports.ray.addresses import LOCAL, why_too_late
from cookhouse.engine.transports.ray.bundles import Needs
from cookhouse.errors import CookhouseError, InputError
from cookhouse.extras import install_command

if TYPE_CHECKING:
    from cookhouse.engine.transports.ray.cluster import Cluster
    from cookhouse.engine.transports.ray.relay import Relay
    from cookhouse.engine.transports.ray.shipping import ObjectCache

_JOIN_SECONDS = 60.0
_LOCAL_SECONDS = 120.0
_FLUSH_SECONDS = 2.0
_END_SECONDS, _LEAVE_SECONDS = 8.0, 5.0
"""For workers to delete their files, and then to leave the cluster; the server waits longer."""
_WATCH_SECONDS, _MAX_MISSES = 1.0, 3
_DEATH_SECONDS = 0.3
"""From the first to the last sign of a raylet that was killed."""
_OBJECTS_SHARE = 4
"""Parts of files keep this part of the object store, one in so many."""
_ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
    "RAY_ENABLE_AUTO_CONNECT": "0",  # a call after the end would start a cluster
}


def run_driver(descriptor: int, load: Callable[[], None], make: MakeRunning) -> int:
    """Be the driver whose socket this is, until it ends; returns the exit code. `load` and `make` run in actors."""
    faulthandler.enable()
    os.environ |= {name: value for name, value in _ENVIRONMENT.items() if name not in os.environ}
    control = socket.socket(fileno=descriptor)
    control.set_inheritable(False)
    driver = _Driver(control, next(Receiver(control, waits=True).read()), load, make)
    threading.Thread(target=driver.take_workers, name="workers", daemon=True).start()
    return driver.run()


class _Driver:
    def __init__(
        self, control: socket.socket, options: dict[str, Any], load: Callable[[], None], make: MakeRunning
    ) -> None:
        self._control = control
        self._sender = Sender(control)
        self._address: str = options["address"]
        self._needs = Needs(**options["needs"])
        self._bundles: dict[str, dict[str, float]] = options["bundles"]
        self._load = load
        self._make = make
        self._joined: Future[tuple[Cluster, ObjectCache]] = Future()
        self._over = threading.Event()
        """The server is gone."""
        self._is_given_up = threading.Event()
        """The cluster is."""
        self._workers: list[threading.Thread] = []
        self._relays: list[Relay] = []

    def run(self) -> int:
        """Join, and stay until the server or the head is gone."""
        try:
            _import_ray()
            with self._bounded():
                cluster = self._join()
        except CookhouseError as error:
            self._refuse(error)
            return 1
        # What Ray starts has the signals as they were. The server ends us in order, also when they are meant for both.
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
        return self._watch(cluster)

    def take_workers(self) -> None:
        """Serve each socket that comes in a thread of its own."""
        while True:
            word, descriptors = b"", list[int]()
            with contextlib.suppress(ConnectionError):  # the server was killed before it had received all our notes
                word, descriptors, _, _ = socket.recv_fds(self._control, 1, 1)
            if not word:
                if not self._is_given_up.is_set():
                    self._over.set()
                return
            for each in descriptors:
                worker = threading.Thread(target=self._keep, args=(socket.socket(fileno=each),), daemon=True)
                self._workers.append(worker)
                worker.start()

    @contextlib.contextmanager
    def _bounded(self) -> Iterator[None]:
        """Refuse, and end, where what is within takes too long: Ray may wait for ever for another program's port."""
        seconds = _LOCAL_SECONDS if self._address == LOCAL else _JOIN_SECONDS
        timer = threading.Timer(seconds, self._refuse, [InputError(why_too_late(self._address, seconds))])
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def _join(self) -> "Cluster":
        from cookhouse.engine.transports.ray.cluster import Cluster
        from cookhouse.engine.transports.ray.shipping import ObjectCache

        cluster = Cluster(self._address, self._needs, self._bundles, self._note_bundle)
        self._joined.set_result((cluster, ObjectCache(cluster.store_bytes() // _OBJECTS_SHARE)))
        return cluster

    def _note_bundle(self, name: str, bundle: Mapping[str, float]) -> None:
        """Have the server keep it for the next driver."""
        self._sender.send(encode((name, dict(bundle))))

    def _refuse(self, error: CookhouseError) -> None:
        """Tell every worker that there is no cluster, and end."""
        if not self._joined.done():
            self._joined.set_exception(error)
        self._over.wait(_FLUSH_SECONDS)  # for a worker that is on its way
        for worker in list(self._workers):
            worker.join(_FLUSH_SECONDS)
        os._exit(1)

    def _keep(self, connection: socket.socket) -> None:
        """Serve a worker, and forget it."""
        ends: list[Callable[[], None]] = []
        is_hung_up = threading.Event()

        def hang_up(_code: int) -> None:
            is_hung_up.set()
            for end in ends:
                end()

        pipe = Pipe(connection, hang_up)
        try:
            relay = self._relay(pipe)
            ends.append(relay.end)
            if not is_hung_up.is_set():  # while there was no cluster
                self._serve(pipe, relay)
        except EOFError:
            pass  # it was not told what to be
        except CookhouseError as error:
            pipe.tell([Lost.by(error)])
        finally:
            pipe.flush()
            pipe.close()
            self._workers.remove(threading.current_thread())

    def _relay(self, pipe: Pipe) -> "Relay":
        """Of the worker at the other end of a socket.

        Raises:
            EOFError: it has ended.
            CookhouseError: there is no cluster.
        """
        options, engine_options = pipe.options.result()
        cluster, objects = self._joined.result()
        from cookhouse.engine.transports.ray.relay import Relay

        return Relay(
            cluster,
            objects,
            options,
            engine_options,
            load=self._load,
            make=self._make,
            tell=pipe.tell,
            check_cluster=partial(self._check, cluster),
        )

    def _serve(self, pipe: Pipe, relay: "Relay") -> None:
        self._relays.append(relay)
        try:
            pipe.feed(relay)
            relay.run()
        finally:
            self._relays.remove(relay)

    def _watch(self, cluster: "Cluster") -> int:
        """Wait for the end of the server, or of the cluster: Ray would take a minute to notice that."""
        misses = 0
        while not self._is_given_up.is_set():
            if self._over.wait(_WATCH_SECONDS):
                self._leave(cluster)
                return 0
            reason = cluster.why_gone()
            misses = 0 if reason is None else misses + 1
            if reason is not None and misses == _MAX_MISSES:
                self._give_up(reason)
        self._over.wait(_FLUSH_SECONDS)
        return 1

    def _leave(self, cluster: "Cluster") -> None:
        """End the workers, and leave the cluster. Ray would kill actors before they have deleted tenants' weights."""
        for relay in list(self._relays):
            relay.end()
        deadline = time.monotonic() + _END_SECONDS
        for worker in list(self._workers):
            worker.join(max(0.0, deadline - time.monotonic()))
        leaving = threading.Thread(target=cluster.leave, daemon=True)
        leaving.start()
        leaving.join(_LEAVE_SECONDS)

    def _check(self, cluster: "Cluster") -> None:
        """Give the cluster up, where it is gone: a moment after an actor at the latest."""
        if (reason := cluster.why_gone()) is None:
            time.sleep(_DEATH_SECONDS)
            reason = cluster.why_gone()
        if reason is not None:
            self._give_up(reason)

    def _give_up(self, reason: str) -> None:
        """Take no more workers, and then tell those that there are."""
        self._is_given_up.set()
        self._control.shutdown(socket.SHUT_RDWR)  # the server then starts another driver
        for relay in list(self._relays):
            relay.lose(reason)


def _import_ray() -> None:
    """Take the time that it takes before any is measured.

    Raises:
        InputError: it is not installed.
    """
    try:
        import cookhouse.engine.transports.ray.relay  # noqa: F401
    except ModuleNotFoundError as error:
        raise InputError(
            f"--ray needs the package {error.name}, which is not installed: {install_command('ray')}"
        ) from error
