"""Runs of tenants against one server, disturbed or not, and what they end with."""

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from cookhouse.server.storage.checkpoints.checkpoint import StoredCheckpoint
from tests.kills.client import TOLD
from tests.kills.nodes import Nodes
from tests.kills.server import KEYS, KeptServer
from tests.kills.shared import SharedServers
from tests.kills.weights import Weights, different_weights, saved_weights
from tests.server.conftest import Cluster

PATIENCE_SECONDS = 420.0
"""For a whole run; the SDK waits for up to 30 s between two tries."""
_FAILED_STARTS = {2: "error: nobody answers at ", 1: "error: killed by signal 9"}
"""Exit codes of starts while Ray's head was away, or under which the only worker was killed, by what they log."""
_MAX_WAIT_SECONDS = 0.15
"""From an answer to the kill that was set for it: about what two steps take."""
_DRAIN_SECONDS = 2.0
_DRAIN_SHARE = 0.3
"""Of the moments, where there are drains."""
_NODE_SHARE, _HEAD_SHARE = 0.4, 0.15
"""Of the moments, where there are nodes."""
_SHARE = 0.9
"""Of a run's answers, those after which something is killed: behind the last ones nothing would be under way."""


@dataclass(frozen=True, kw_only=True)
class Setting:
    """Which tenants run, and how their server computes."""

    loops: tuple[str, ...]
    """One of each tenant's; a model that trains alone repeats to the bit without `deterministic`."""
    precision: str
    deterministic: bool
    pool: tuple[tuple[str, int], ...] = ()
    """How many workers of which kind, as the server's options; none: one that does all."""
    num_servers: int = 1
    """Several share the sessions, and clients ask any of them."""

    @property
    def name(self) -> str:
        words = [*self.loops, self.precision, *(["deterministic"] if self.deterministic else [])]
        servers = [f"{self.num_servers}-servers"] if self.num_servers > 1 else []
        return "-".join([*words, *(f"{number}-{kind}" for kind, number in self.pool), *servers])

    @property
    def options(self) -> list[str]:
        pool = [word for kind, number in self.pool for word in (f"--{kind}", str(number))]
        return ["--precision", self.precision, *(["--deterministic"] if self.deterministic else []), *pool]

    @property
    def num_workers(self) -> int:
        return sum(number for _, number in self.pool) or 1


@dataclass(frozen=True, kw_only=True)
class Moment:
    """When to kill what."""

    after_answers: int
    """Of all clients together."""
    wait_seconds: float
    servers: tuple[int, ...] = (0,)
    """The servers that are killed, by number."""
    workers: tuple[int, ...] = ()
    """The workers of the first of these servers that are killed instead, by number."""
    of_ray: Literal["", "node", "head"] = ""
    """What of the cluster is killed instead: a node with the worker that it has, or the head and so all of it."""
    is_drain: bool = False
    """Whether a worker is drained instead, and another added."""


@dataclass
class Outcome:
    """What the clients of a run ended with, by loop."""

    folder: Path
    checkpoints: Sequence[StoredCheckpoint] = ()
    """All that were saved."""
    errors: dict[str, str] = field(default_factory=dict)
    """What a client that failed said at its end."""
    num_answers: int = 0
    kills: list[str] = field(default_factory=list)
    """What was killed, and where that hit."""
    odd_exits: list[int] = field(default_factory=list)
    """Exit codes of servers that ended by themselves."""
    left: list[str] = field(default_factory=list)
    """Processes and files that are still there once the server and all sessions have ended."""

    def told(self, loop: str) -> Any:
        """What a client kept: its model's id, and all numbers."""
        return json.loads((self.folder / loop / TOLD).read_text())

    def differences(self, whole: "Outcome", loops: Sequence[str]) -> list[str]:
        """In words, what is not as in an undisturbed run; none: it ended as that did, to the bit."""
        found = [f"{loop} failed: {error}" for loop, error in self.errors.items()]
        found += [f"a server ended by itself with exit code {code}" for code in self.odd_exits]
        found += [f"left behind: {what}" for what in self.left]
        for loop in loops:
            if loop not in self.errors:
                found += _different_numbers(loop, self.told(loop)["numbers"], whole.told(loop)["numbers"])
                if (different := different_weights(self._weights(loop), whole._weights(loop))) is not None:
                    found.append(f"{loop}: {different}")
        return found

    def _weights(self, loop: str) -> Weights:
        return saved_weights(self.checkpoints, self.told(loop)["model_id"])


def _different_numbers(loop: str, ours: Sequence[Any], theirs: Sequence[Any]) -> list[str]:
    pairs = enumerate(zip(ours, theirs, strict=True))
    places = [index + 1 for index, (our, their) in pairs if our != their]
    return [f"{loop}: {len(places)} answers differ, the first is {places[0]}"] if places else []


class Client:
    """A tenant's program in a process of its own."""

    def __init__(self, loop: str, key: str, url: str, folder: Path, answered: Callable[[], None]) -> None:
        self.loop = loop
        self.num_answers = 0
        folder.mkdir(parents=True)
        self._errors = folder / "errors.log"
        environment = {**os.environ, "TINKER_BASE_URL": url, "TINKER_API_KEY": key, "TINKER_TELEMETRY": "0"}
        with self._errors.open("wb") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.kills.client", loop, str(folder)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=environment,
                cwd=Path(__file__).parents[2],
            )
        self._reader = threading.Thread(target=self._read, args=(answered,), name=loop, daemon=True)
        self._reader.start()

    @property
    def is_over(self) -> bool:
        return self._process.poll() is not None

    def end(self, deadline: float) -> str | None:
        """Wait for its end; what it said, if it failed or took too long."""
        try:
            code = self._process.wait(max(0.1, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            return f"it hangs: no end within {PATIENCE_SECONDS:.0f} s, after {self.num_answers} answers"
        finally:
            self._reader.join(10)
        if code == 0:
            return None
        said = self._errors.read_text(errors="replace").strip().splitlines()
        return f"after {self.num_answers} answers: {said[-1] if said else f'exit code {code}'}"

    def _read(self, answered: Callable[[], None]) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for _ in lines:
                self.num_answers += 1
                answered()


def run(
    folder: Path,
    setting: Setting,
    moments: Sequence[Moment] = (),
    *,
    say: Callable[[str], None] = lambda _: None,
    module: Sequence[str] = ("cookhouse.server",),
    options: Sequence[str] = (),
    nodes: Nodes | None = None,
    cluster: Cluster | None = None,
) -> Outcome:
    """Let the tenants run to their ends, and kill at the moments, one after the other. Workers run on `nodes`, if there
    are any; servers that share have their rows in `cluster`.
    """
    outcome = Outcome(folder)
    on_nodes = [] if nodes is None else ["--ray", nodes.address, "--worker-cpus", "1"]
    find_engines = None if nodes is None else (lambda _: nodes.actors())
    command = [*setting.options, *options, *on_nodes]
    server: KeptServer | SharedServers
    if setting.num_servers > 1:
        assert cluster is not None
        server = SharedServers(
            folder, setting.num_servers, cluster.new(), command, module=module, find_engines=find_engines
        )
    else:
        server = KeptServer(folder, command, module=module, find_engines=find_engines)
    with server:
        server.wait_until_ready()
        came = threading.Condition()

        def answered() -> None:
            with came:
                outcome.num_answers += 1
                came.notify_all()

        deadline = time.monotonic() + PATIENCE_SECONDS
        clients = [
            Client(loop, key, server.url, folder / loop, answered)
            for loop, key in zip(setting.loops, KEYS, strict=False)
        ]
        for moment in sorted(moments, key=lambda one: one.after_answers):
            with came:
                while outcome.num_answers < moment.after_answers and not all(client.is_over for client in clients):
                    assert time.monotonic() < deadline, _stuck(clients, server)
                    came.wait(0.1)
            time.sleep(moment.wait_seconds)
            outcome.kills.append(_kill(server, moment, clients, nodes))
            say(outcome.kills[-1])
        for client in clients:
            if (error := client.end(deadline)) is not None:
                outcome.errors[client.loop] = error
        outcome.odd_exits = _odd_exits(server)
        if not outcome.errors:
            told = {key: outcome.told(loop)["model_id"] for loop, key in zip(setting.loops, KEYS, strict=False)}
            server.end_sessions({key: model_id.partition(":")[0] for key, model_id in told.items()})
            outcome.left = server.left_files()
        outcome.checkpoints = server.checkpoints()
    outcome.left += server.left_processes()
    if nodes is not None:
        outcome.left += nodes.left()
    return outcome


def _odd_exits(server: KeptServer | SharedServers) -> list[int]:
    """Exit codes of servers that were not killed, but for `_FAILED_STARTS`, which another start follows."""
    logs = [one.log.read_text(errors="replace") for one in server.servers]
    odd = [code for code in server.exit_codes if code != -signal.SIGKILL]
    for code, words in _FAILED_STARTS.items():
        num_failed = sum(log.count(words) for log in logs)
        for _ in range(min(num_failed, odd.count(code))):
            odd.remove(code)
    return odd


def _stuck(clients: Sequence[Client], server: KeptServer | SharedServers) -> str:
    where = ", ".join(f"{client.loop} after {client.num_answers} answers" for client in clients)
    return f"nothing is answered any more: {where}; the server's log:\n{server.tail()}"


def _kill(group: KeptServer | SharedServers, moment: Moment, clients: Sequence[Client], nodes: Nodes | None) -> str:
    where = ", ".join(f"{client.loop} at answer {client.num_answers}{' (over)' * client.is_over}" for client in clients)
    when = f"killed {1e3 * moment.wait_seconds:.0f} ms after answer {moment.after_answers}: {where}"
    if moment.of_ray:
        assert nodes is not None
        return f"{moment.of_ray if nodes.kill(moment.of_ray) else 'no node (none had a worker yet)'} {when}"
    server, *_ = servers = [group.servers[place] for place in moment.servers]
    if moment.is_drain:
        return f"{server.drain_worker(_DRAIN_SECONDS)} after answer {moment.after_answers}: {where}"
    num_workers = len(server.engines())
    num_killed = server.kill_workers(moment.workers)
    if not num_killed:
        counts = [each.kill() for each in servers]
        for each, count in zip(servers, counts, strict=True):
            each.wait_for_start(count)
    victim = f"{num_killed} of {num_workers} workers" if num_killed else "server"
    if len(group.servers) > 1:
        victim += f" {', '.join(map(str, moment.servers))}"
    if moment.workers and not num_killed:
        victim += " (it had no worker yet)"
    return f"{victim} {when}"


def random_moments(
    seed: str,
    num_moments: int,
    num_answers: int,
    num_workers: int = 1,
    *,
    num_servers: int = 1,
    has_nodes: bool = False,
    has_drains: bool = False,
) -> list[Moment]:
    """Moments of a run of so many answers, from a seed: of a server, of several at once, of one of the workers, or of
    several at once; or of a node or the head of a cluster; or when a worker is drained.
    """
    chance = random.Random(seed)
    return [
        Moment(
            after_answers=chance.randrange(int(_SHARE * num_answers)),
            wait_seconds=chance.uniform(0.0, _MAX_WAIT_SECONDS),
            workers=_victims(chance, num_workers),
            servers=_servers(chance, num_servers),
            of_ray=_part_of_ray(chance) if has_nodes else "",
            is_drain=has_drains and chance.random() < _DRAIN_SHARE,
        )
        for _ in range(num_moments)
    ]


def _part_of_ray(chance: random.Random) -> Literal["", "node", "head"]:
    drawn = chance.random()
    return "node" if drawn < _NODE_SHARE else "head" if drawn < _NODE_SHARE + _HEAD_SHARE else ""


def _servers(chance: random.Random, num_servers: int) -> tuple[int, ...]:
    if num_servers == 1:
        return (0,)
    return tuple(chance.sample(range(num_servers), chance.randint(1, num_servers)))


def _victims(chance: random.Random, num_workers: int) -> tuple[int, ...]:
    number = chance.choice([0, 1, *([chance.randint(2, num_workers)] if num_workers > 1 else [])])
    return tuple(chance.sample(range(num_workers), number))
