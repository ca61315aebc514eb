"""`cookhouse cluster` over a server of several workers."""

import json
import socket
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest
from rich.cells import cell_len
from tests.server.fake_engine import FakeEngine
from tests.server.hosting import KEY, OTHER_KEY, Host, hosted
from tests.server.test_routes import Server
from tests.waiting import wait_until

from cookhouse.cli import main
from cookhouse.cli.cluster.commands import lines_of
from cookhouse.server.pool.plans import plans_of


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cookhouse.server.status.status._AGAIN_SECONDS", 0.0)
    monkeypatch.setattr("cookhouse.server.status.worker_watch._AGAIN_SECONDS", 0.0)
    monkeypatch.setattr("cookhouse.cli.cluster.commands._LOOK_SECONDS", 0.01)


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Host]:
    with hosted(tmp_path, FakeEngine, plans=plans_of(workers=2)) as host:
        monkeypatch.setenv("TINKER_BASE_URL", host.url)
        monkeypatch.setenv("TINKER_API_KEY", KEY)
        yield host


def call(*words: str) -> int:
    with pytest.raises(SystemExit) as caught:
        main(["cluster", *words])
    assert isinstance(caught.value.code, int)
    return caught.value.code


def names_of(host: Host) -> list[str]:
    return [worker.name for worker in host.service.pool.workers]


def test_it_lists_each_worker(host: Host, capsys: pytest.CaptureFixture[str]) -> None:
    """Would catch figures in the column of others, and a first look that does not know how busy a worker is."""
    server = Server(host, FakeEngine())
    server.model(server.session())
    server.close()
    assert call() == 0
    header, *rows, waiting = capsys.readouterr().out.splitlines()
    assert header.split() == [
        *("name", "role", "state", "models", "weights", "queue", "busy", "memory", "GPU", "losses", "device")
    ]
    assert [row.split()[:4] for row in rows] == [[name, "trains,", "samples", "up"] for name in ("worker0", "worker1")]
    for row, models in zip(rows, "10", strict=True):
        at = header.index("models")
        assert row[at:].split()[:3] == [models, "0", "0"]
        assert row[header.index("busy") :].split()[0].endswith("%")
        assert row.endswith("a fake")
    assert waiting == "waiting at the server: 0 training requests, 0 samples, 0 models without a worker"


def test_programs_are_given_what_the_server_tells(host: Host, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("list", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert [one["name"] for one in told] == names_of(host)
    assert all(0 <= one["utilization"] <= 1 for one in told)


def told(*workers: dict[str, Any], troubles: Sequence[str] = (), **waiting: int) -> dict[str, Any]:
    """A status."""
    waits = {**dict.fromkeys(("num_training_requests", "num_samples", "num_models"), 0), **waiting}
    return {"workers": workers, "troubles": troubles, "waiting": waits, "servers": None}


@pytest.fixture
def worker() -> dict[str, Any]:
    return {
        **dict.fromkeys(("num_models", "num_snapshots", "num_commands", "num_tokens", "num_losses"), 3),
        "name": "worker10",
        "node": None,
        "trains": True,
        "samples": True,
        "state": "up",
        "up_seconds": 70.0,
        "computes_on": "cpu, 16 threads, bfloat16, 11.28 GiB of memory",
        "utilization": 0.756,
        "memory_bytes": 3 * 2**30,
        "device_memory": {"used_bytes": 2**30, "total_bytes": 80 * 2**30},
    }


def test_a_narrow_terminal_is_told_what_it_lacks(worker: dict[str, Any]) -> None:
    for state, expected in (("up", "up 1:10"), ("draining", "draining"), ("restarting", "restarting")):
        header, row, *notes = lines_of(told({**worker, "state": state}, troubles=["A trouble."]), 76)
        assert max(map(cell_len, (header, row))) <= 76
        assert expected in row
        assert "76%" in row
        assert notes[:-1] == [
            "hidden columns: weights, GPU, memory, role; widen the terminal or use --json",
            "A trouble.",
        ]
    assert "1.0 GiB of 80.0 GiB" in lines_of(told(worker), None)[1]


def test_what_no_worker_has_is_counted_below(worker: dict[str, Any]) -> None:
    """Would catch a server full of requests whose workers have empty queues, of which nobody is told."""
    status = told(worker, num_training_requests=1200, num_samples=1, num_models=2)
    assert lines_of(status, 80)[-1] == (
        "waiting at the server: 1,200 training requests, 1 sample, 2 models without a worker"
    )


def test_workers_of_another_server_are_pointed_at(worker: dict[str, Any]) -> None:
    """Would catch half the workers of two servers, shown as if they were all."""
    two = [{"url": f"http://gpu-{number}.lan:8000", "is_this": number == 2} for number in (1, 2)]
    three = [*two, {"url": "http://gpu-3.lan:8000", "is_this": False}]
    hidden = [{**one, "url": None} for one in two]
    for servers, expected in (
        (None, []),
        (two[1:], []),
        (two, ["server 2 of 2: http://gpu-2.lan:8000; ask http://gpu-1.lan:8000 for its workers"]),
        (
            three,
            [
                "server 2 of 3: http://gpu-2.lan:8000; ask http://gpu-1.lan:8000 and http://gpu-3.lan:8000 for their "
                "workers"
            ],
        ),
        (hidden, ["server 2 of 2; the others have workers of their own, at addresses that its first key sees"]),
    ):
        assert lines_of({**told(worker), "servers": servers}, None)[2:-1] == expected


def test_workers_of_a_cluster_have_their_node(worker: dict[str, Any]) -> None:
    """Would catch workers of several machines that look alike, and a column of nothing where there is one machine."""
    alone, on_ray = told(worker), told(worker, {**worker, "node": "10.0.0.7"})
    for width in (None, 100):
        assert "node" not in lines_of(alone, width)[0].split()
        header, here, there = lines_of(on_ray, width)[:3]
        at = header.index("node")
        assert (here[at:].split()[0], there[at:].split()[0]) == ("-", "10.0.0.7")


def test_a_worker_is_added_and_drained(host: Host, capsys: pytest.CaptureFixture[str]) -> None:
    server = Server(host, FakeEngine())
    server.model(server.session())
    server.close()
    assert call("add") == 0
    assert capsys.readouterr().out.startswith("starting worker2; it gets work once it is up; ")
    assert call("drain", "worker0", "--seconds", "5") == 0
    assert capsys.readouterr().out.startswith("draining worker0 (at most 5 s); 1 model moves to other workers; ")
    wait_until(lambda: names_of(host) == ["worker1", "worker2"])


def test_what_the_server_refuses_is_said(host: Host, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("drain", "no such") == 2
    assert "there is no worker 'no such' that could leave; there are worker0 and worker1" in capsys.readouterr().err
    for words in (("add",), ("drain", "worker0")):
        assert call(*words, "--api-key", OTHER_KEY) == 2
        assert "first key" in capsys.readouterr().err
    assert call("--api-key", "tml-wrong") == 2
    assert "not one of this server's" in capsys.readouterr().err
    assert names_of(host) == ["worker0", "worker1"]


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("TINKER_BASE_URL", "no server address; set --base-url or TINKER_BASE_URL"),
        ("TINKER_API_KEY", "wants a key; set TINKER_API_KEY"),
    ],
)
def test_address_and_key_are_asked_for(
    host: Host, name: str, reason: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    del host
    monkeypatch.delenv(name)
    assert call() == 2
    assert reason in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("--api-key", "tml-schlüssel"), "the key has characters that no key of a server has"),
        (("--api-key", f"{KEY}\n"), "the key has characters that no key of a server has"),
        (("--watch", "--json"), "--json and --watch cannot be combined"),
    ],
)
def test_what_makes_no_sense_is_refused(
    host: Host, words: tuple[str, ...], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Would catch a traceback, a server that is said not to answer, and an option that changes nothing."""
    del host
    assert call(*words) == 2
    assert reason in capsys.readouterr().err


def test_nobody_there_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
    assert call("--base-url", url, "--api-key", KEY) == 1
    assert f"{url} does not answer" in capsys.readouterr().err
    assert call("--base-url", "nonsense", "--api-key", KEY) == 2
    assert "nonsense is no address of a server" in capsys.readouterr().err


def test_another_kind_of_server_is_said(host: Host, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("--base-url", f"{host.url}/v1") == 2
    assert "the server reports no workers" in capsys.readouterr().err


def test_an_older_server_is_said(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Would catch a traceback where the status lacks what is shown today."""
    old = httpx.Response(200, json={"workers": [], "troubles": []})
    monkeypatch.setattr("cookhouse.cli.cluster.operator.httpx.request", lambda *_, **__: old)
    assert call("--base-url", "http://old.lan", "--api-key", KEY) == 2
    assert "http://old.lan: the server reports no workers; it is not cookhouse serve, or an older version" in (
        capsys.readouterr().err
    )


def test_help_says_what_works_without_a_command(capsys: pytest.CaptureFixture[str]) -> None:
    """Would catch options that are in the help of `list` alone, though they work without it."""
    assert call("--help") == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "`cookhouse cluster --watch` is `cluster list --watch`" in shown
    assert "--json" in shown


def test_watching_goes_on_until_it_is_told_to_end(
    host: Host, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Would catch one that ends with the server, which is only being started again, or that shows the first look."""
    looks: list[str] = []
    request = httpx.request

    def refused(*_: object, **__: object) -> httpx.Response:
        raise httpx.ConnectError("connection refused")

    def replace_worker() -> None:
        life = host.service.pool.workers[0].life
        life.lose("a test")
        life.begin("a CPU")

    def sleep(_seconds: float) -> None:
        looks.append(capsys.readouterr().out)
        if len(looks) == 1:
            host.on_loop(replace_worker)
            monkeypatch.setattr("cookhouse.cli.cluster.operator.httpx.request", refused)
        elif len(looks) == 2:
            monkeypatch.setattr("cookhouse.cli.cluster.operator.httpx.request", request)
        else:
            raise KeyboardInterrupt

    monkeypatch.setattr("cookhouse.cli.cluster.commands.time", type("Time", (), {"sleep": staticmethod(sleep)}))
    assert call("--watch") == 130
    first, away, again = looks
    assert "was lost" not in first
    assert "does not answer" in away
    assert "trying again" in away
    assert "worker0 was lost" in again
