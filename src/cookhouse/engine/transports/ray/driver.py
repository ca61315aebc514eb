"""The process beside the server that is in Ray's cluster, for all its workers. It ends with the server, or Ray's head.

main thread     joins or starts the cluster, and then watches its head
workers         takes a socket for each worker; the end of what brings them ends the process
one a worker    its relay
"""

import faulthandler
import logging
import os
import signal
import socket
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, Any

from cookhouse.engine.contract import Failure, Lost
from cookhouse.engine.transports.child_process import MakeRunning, Pipe
from cookhouse.engine.transports.messages import Receiver, encode
from cookhouse.engine.transports.ray.addresses import LOCAL, why_too_late
from cookhouse.engine.transports.ray.bundles import Needs
from cookhouse.engine.transports.sending import Sender
from cookhouse.errors import CookhouseError, InputError
from cookhouse.extras import install_command

if TYPE_CHECKING:
    from cookhouse.engine.transports.ray.cluster import Cluster
    from cookhouse.engine.transports.ray.object_cache import ObjectCache

_JOIN_SECONDS = 20.0
_LOCAL_SECONDS = 120.0
_FLUSH_SECONDS = 2.0
_LEAVE_SECONDS = 10.0
_WATCH_SECONDS, _MAX_MISSES = 1.0, 3
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
        self._losses: list[Callable[[str], None]] = []
        """Tell each worker of its end."""

    def run(self) -> int:
        """Join, and stay until the server or the head is gone."""
        seconds = _LOCAL_SECONDS if self._address == LOCAL else _JOIN_SECONDS
        joining = threading.Timer(seconds, self._refuse, [InputError(why_too_late(self._address, seconds))])
        joining.daemon = True
        joining.start()
        try:
            cluster = self._join()
        except CookhouseError as error:
            joining.cancel()
            self._refuse(error)
            return 1
        joining.cancel()
        # What Ray starts has the signals as they were. The server ends us in order, also when they are meant for both.
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
        return self._watch(cluster)

    def take_workers(self) -> None:
        """Serve each socket that comes in a thread of its own."""
        while True:
            word, descriptors, _, _ = socket.recv_fds(self._control, 1, 1)
            if not word:
                if not self._is_given_up.is_set():
                    self._over.set()
                return
            for each in descriptors:
                worker = threading.Thread(target=self._keep, args=(socket.socket(fileno=each),), daemon=True)
                self._workers.append(worker)
                worker.start()

    def _join(self) -> "Cluster":
        try:
            from cookhouse.engine.transports.ray.cluster import Cluster
            from cookhouse.engine.transports.ray.object_cache import ObjectCache
        except ModuleNotFoundError as error:
            raise InputError(
                f"--ray needs the package {error.name}, which is not installed: {install_command('ray')}"
            ) from error
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
        try:
            self._serve(connection)
        finally:
            self._workers.remove(threading.current_thread())

    def _serve(self, connection: socket.socket) -> None:
        ends: list[Callable[[], None]] = []
        is_hung_up = threading.Event()

        def hang_up(_code: int) -> None:
            is_hung_up.set()
            for end in ends:
                end()

        pipe = Pipe(connection, hang_up)
        try:
            options, engine_options = pipe.options.result()
        except EOFError:
            return
        try:
            cluster, objects = self._joined.result()
            from cookhouse.engine.transports.ray.relay import Relay

            relay = Relay(
                cluster,
                objects,
                options,
                engine_options,
                load=self._load,
                make=self._make,
                tell=pipe.tell,
                check_cluster=partial(self._check, cluster),
            )
            ends.append(relay.end)
            if is_hung_up.is_set():  # while there was no cluster
                return
            self._losses.append(relay.lose)
            try:
                pipe.feed(relay)
                relay.run()
            finally:
                self._losses.remove(relay.lose)
        except Exception as error:
            failure = Failure.of(error)
            if failure.details and failure.kind == "bug":
                logging.getLogger(__name__).error("worker %s cannot be had", options.worker, exc_info=error)
            pipe.tell([Lost(worker=options.worker, reason=failure.message, failure=failure)])
        pipe.flush()
        pipe.close()

    def _watch(self, cluster: "Cluster") -> int:
        """Wait for the end of the server, or of the cluster: Ray would take a minute to notice that."""
        import ray

        misses = 0
        while misses < _MAX_MISSES and not self._is_given_up.is_set():
            if self._over.wait(_WATCH_SECONDS):
                leaving = threading.Thread(target=ray.shutdown, daemon=True)
                leaving.start()
                leaving.join(_LEAVE_SECONDS)
                return 0
            reason = cluster.why_gone()
            misses = 0 if reason is None else misses + 1
        self._check(cluster)
        self._over.wait(_FLUSH_SECONDS)
        return 1

    def _check(self, cluster: "Cluster") -> None:
        """Where the cluster is gone, take no more workers, and then tell those that there are."""
        reason = cluster.why_gone()
        if reason is None:
            return
        self._is_given_up.set()
        self._control.shutdown(socket.SHUT_RDWR)  # the server then starts another driver
        for lose in list(self._losses):
            lose(reason)
