"""Connections of strangers, which send nothing, half a head, or nonsense: nobody else waits for them."""

import contextlib
import os
import resource
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.server.hosting import KEY
from tests.server.test_process import process, ready, start_pass
from tests.waiting import next_line, wait_until

from cookhouse.errors import InputError
from cookhouse.server.access.connections import Connections, Limits, limits_of

SCRIPT = Path(__file__).with_name("serve_trivial.py")
HEALTH = b"GET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n"
HALF = b"POST /api/v1/create_session HTTP/1.1\r\nhost: 127.0.0"
DESCRIPTORS = 128


def connect(port: int, first: bytes = b"") -> socket.socket:
    client = socket.create_connection(("127.0.0.1", port), timeout=10)
    if first:
        client.sendall(first)
    return client


def health_seconds(port: int) -> float:
    """How long an answer takes."""
    began = time.monotonic()
    with connect(port, HEALTH) as client:
        assert client.recv(100).startswith(b"HTTP/1.1 200")
    return time.monotonic() - began


@contextlib.contextmanager
def strangers(port: int, num_idle: int, num_half: int) -> Iterator[list[socket.socket]]:
    with contextlib.ExitStack() as held:
        yield [
            held.enter_context(connect(port, b"" if index < num_idle else HALF)) for index in range(num_idle + num_half)
        ]


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    """Of a server with a head's deadline that no test here waits for."""
    with process([str(SCRIPT), str(DESCRIPTORS), "600"]) as running:
        yield int(next_line(running))
        assert running.poll() is None
        running.kill()
        assert running.stderr is not None
        log = running.stderr.read()
    assert "closed for newer ones" in log
    assert len(log.splitlines()) <= 3, f"one line a minute: {log}"


def test_held_connections_keep_nobody_out(port: int) -> None:
    """Would catch a server that a few more of them than it has descriptors make deaf, and one with none for files."""
    with connect(port, b"GET /poll HTTP/1.1\r\nhost: a\r\nx-api-key: tml-good\r\n\r\n") as poll:
        with strangers(port, 2 * DESCRIPTORS, DESCRIPTORS // 2):
            for path in (b"healthz", b"file") * 3:
                with connect(port, HEALTH.replace(b"healthz", path)) as client:
                    assert client.recv(100).startswith(b"HTTP/1.1 200"), path
        poll.setblocking(False)
        with pytest.raises(BlockingIOError):  # it has sent a key, and was not closed for others
            poll.recv(1)


def test_a_burst_is_answered(port: int) -> None:
    """Would catch a limit by address that turns away clients whose requests have come with their connections."""
    with contextlib.ExitStack() as held:
        clients = [held.enter_context(connect(port, HEALTH)) for _ in range(2 * DESCRIPTORS)]
        assert all(client.recv(100).startswith(b"HTTP/1.1 200") for client in clients)


def test_nonsense_is_logged_once_a_minute(port: int) -> None:
    for _ in range(20):
        with connect(port, b"nonsense\r\n\r\n") as client:
            assert client.recv(100).startswith(b"HTTP/1.1 400")


def test_a_head_has_a_deadline() -> None:
    """Would catch one that sends a byte now and then, on a connection that has been used, too."""
    with process([str(SCRIPT), str(DESCRIPTORS), "0.3"]) as running:
        port = int(next_line(running))
        used = connect(port, HEALTH)
        assert used.recv(100).startswith(b"HTTP/1.1 200")
        with used, connect(port) as idle, connect(port) as slow:
            began = time.monotonic()
            with contextlib.suppress(ConnectionError):
                while time.monotonic() - began < 10:
                    slow.sendall(b"x")
                    used.sendall(b"x")
                    time.sleep(0.05)
            assert time.monotonic() - began < 10
            for client in (used, idle, slow):
                with contextlib.suppress(ConnectionError):
                    assert client.recv(1) == b""


class Stub:
    def __init__(self, guard: Connections, *, is_idle: bool = True, age_seconds: float = 0.0) -> None:
        self.guard, self.is_idle, self.age_seconds = guard, is_idle, age_seconds
        self.is_open = True

    def abort(self) -> None:
        self.is_open = False
        self.guard.remove(self)


def guarded(most: int = 4, of_address: int = 2) -> Connections:
    limits = Limits(max_connections=most, max_address_connections=of_address, head_seconds=20.0)
    return Connections(limits, lambda _: False)


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("hosts", "known", "host", "gone"),
    [
        (["a", "b"], [], "a", None),
        (["a", "b", "a"], [], "a", 0),  # the oldest of this address
        (["a", "b", "b"], [], "a", None),
        (["a", "b", "b"], [1, 2], "b", None),  # with keys they count no longer
        (["a", "b", "b", "c"], [], "d", 1),  # all are in use: of the address that has most
        (["2001:db8::1", "2001:db8::2"], [], "2001:db8::3", 0),  # of one customer
        (["::ffff:10.0.0.1", "10.0.0.1"], [], "10.0.0.1", 0),
    ],
)
async def test_who_goes(hosts: list[str], known: list[int], host: str, gone: int | None) -> None:
    guard = guarded()
    opened = [Stub(guard) for _ in hosts]
    for one, its in zip(opened, hosts, strict=True):
        guard.add(one, its)
    for index in known:
        guard.know(opened[index])
    assert await guard.has_room(host)
    assert [index for index, one in enumerate(opened) if not one.is_open] == ([] if gone is None else [gone])


@pytest.mark.anyio
async def test_a_request_in_progress_goes_last() -> None:
    """Would catch a download by a link, which has no key, that ends since somebody else connects."""
    guard = guarded(of_address=2)
    busy, idle = Stub(guard, is_idle=False, age_seconds=5.0), Stub(guard)
    for one in (busy, idle):
        guard.add(one, "a")
    assert await guard.has_room("a")
    assert (busy.is_open, idle.is_open) == (True, False)
    guard.add(Stub(guard, is_idle=False), "a")
    assert not await guard.has_room("a")
    busy.age_seconds = 21.0  # who reads no answer holds nothing for ever
    assert await guard.has_room("a")


def test_limits_come_from_the_limit_of_open_files(monkeypatch: pytest.MonkeyPatch) -> None:
    def limit(number: int) -> None:
        monkeypatch.setattr(resource, "getrlimit", lambda _: (number, number))

    limit(4096)
    found = limits_of(None, None, 20.0)
    assert 3500 < found.max_connections < 4096 - 64
    assert found.max_address_connections == found.max_connections // 2
    assert limits_of(100, None, 20.0).max_address_connections == 50
    assert limits_of(100, 200, 20.0).max_address_connections == 100
    limit(64)
    with pytest.raises(InputError, match="limit of open files is 64, which leaves 0 for connections; at least 16"):
        limits_of(None, None, 20.0)
    with pytest.raises(InputError, match="or lower --max-connections"):
        limits_of(100, None, 20.0)


@pytest.mark.slow
def test_a_tenant_trains_on_among_thousands_of_strangers(tmp_path: Path) -> None:
    """The whole of it, over a server: 5,000 that send nothing and 1,000 half heads, which come again when closed."""
    script = Path(__file__).parents[1] / "serve_fake.py"
    soft = 4096
    with (
        (tmp_path / "log").open("wb") as log,
        subprocess.Popen(
            ["sh", "-c", f'ulimit -n {soft}; exec "$0" "$@"', sys.executable, str(script), str(tmp_path / "state")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env=os.environ,
        ) as running,
    ):
        try:
            with ready(running) as http:
                port = http.base_url.port
                assert port is not None
                stop, lost = threading.Event(), [0]

                def hold(first: bytes, number: int) -> None:
                    held: list[socket.socket] = []
                    while not stop.is_set():
                        try:
                            while len(held) < number:
                                held.append(connect(port, first))
                                held[-1].setblocking(False)
                        except OSError:
                            lost[0] += 1
                        for client in list(held):
                            with contextlib.suppress(BlockingIOError):
                                with contextlib.suppress(ConnectionError):
                                    if client.recv(1):
                                        continue
                                client.close()
                                held.remove(client)
                        stop.wait(0.2)
                    for client in held:
                        client.close()

                holding = [threading.Thread(target=hold, args=pair) for pair in ((b"", 5000), (HALF, 1000))]
                for one in holding:
                    one.start()
                try:
                    seconds, steps = [], 0
                    until = time.monotonic() + 20
                    request_id = start_pass(http)
                    model_id = http.get("/training_runs").json()["training_runs"][0]["training_run_id"]
                    while time.monotonic() < until:
                        adam = {"learning_rate": 0.1}
                        step = {"model_id": model_id, "seq_id": 2 + steps, "adam_params": adam}
                        request_id = http.post("/optim_step", json=step).json()["request_id"]
                        assert http.post("/retrieve_future", json={"request_id": request_id}).status_code == 200
                        steps += 1
                        seconds.append(health_seconds(port))
                finally:
                    stop.set()
                    for one in holding:
                        one.join()
                assert steps >= 20
                # Who is let in only when strangers time out waits for their heads, 20 s.
                assert max(seconds) < 15.0, sorted(seconds)[-5:]
                wait_until(lambda: http.get("/healthz").status_code == 200)
        finally:
            running.kill()
    assert (tmp_path / "log").stat().st_size < 2**20
    assert KEY not in (tmp_path / "log").read_text()
