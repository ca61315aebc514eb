"""What is told of several workers: each its own, and sums where they are sums."""

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.server.fake_engine import FakeEngine
from tests.server.hosting import Host, hosted, hosted_over
from tests.server.status.conftest import OPERATOR, TENANT, Watched
from tests.server.test_silence import SETTINGS, HeldEngine, sample
from tests.waiting import wait_until

from cookhouse.engine.contract import CacheUse, Event, MemoryUse, Up, Worker, WorkerOptions
from cookhouse.engine.transports.thread import InThread
from cookhouse.server.pool.plans import WorkerPlan, plans_of
from cookhouse.server.settings import Settings

CACHE = CacheUse(
    base_model="cookhouse/tiny",
    num_used_blocks=1,
    num_blocks=2,
    max_blocks=3,
    block_bytes=1024,
    running={},
    waiting={},
)


@contextlib.contextmanager
def serving(
    folder: Path, engines: list[HeldEngine], plans: Sequence[WorkerPlan], settings: Settings = SETTINGS
) -> Iterator[Watched]:
    def make_engine() -> HeldEngine:
        engine = HeldEngine()
        engine.free.set()
        engines.append(engine)
        return engine

    with hosted(folder, make_engine, settings, plans=plans) as host, contextlib.ExitStack() as stack:
        watched = Watched(host, engines[0])
        for server in (watched.operator, watched.tenant):
            stack.callback(server.close)
        for engine in engines:
            stack.callback(engine.free.set)
        yield watched


@pytest.fixture
def engines() -> list[HeldEngine]:
    return []


@pytest.fixture
def two(tmp_path: Path, engines: list[HeldEngine]) -> Iterator[Watched]:
    with serving(tmp_path, engines, plans_of(workers=2)) as watched:
        yield watched


def metrics_of(host: Host) -> dict[str, dict[str, float]]:
    """Values of each metric, by its labels as text."""
    text = httpx.get(f"{host.url}/metrics", trust_env=False).text
    found: dict[str, dict[str, float]] = {}
    for family in text_string_to_metric_families(text):
        for one in family.samples:
            labels = ",".join(f"{name}={value}" for name, value in sorted(one.labels.items()))
            found.setdefault(one.name, {})[labels] = one.value
    return found


def test_each_worker_has_an_entry_with_what_it_does(tmp_path: Path, engines: list[HeldEngine]) -> None:
    """Would catch a status that knows the first worker alone, and roles that are mixed up."""
    with serving(tmp_path, engines, plans_of(trainers=1, samplers=2)) as watched:
        workers = watched.status()["workers"]
        assert [(one["name"], one["trains"], one["samples"]) for one in workers] == [
            ("trainer0", True, False),
            ("sampler1", False, True),
            ("sampler2", False, True),
        ]
        assert all(one["is_up"] and one["up_seconds"] >= 0 and one["computes_on"] == "a fake" for one in workers)
        assert all(one["status_age_seconds"] >= 0 and one["turn"] is None for one in workers)


class OnNode(InThread):
    """As Ray's driver tells of a worker."""

    async def events(self) -> Sequence[Event]:
        return [replace(one, node="10.0.0.7") if isinstance(one, Up) else one for one in await super().events()]


def test_the_node_of_each_worker_is_told(tmp_path: Path) -> None:
    """Would catch workers of a cluster that all look alike, of which nobody knows where they are."""

    def make_worker(options: WorkerOptions) -> Worker:
        return (OnNode if options.worker == "sampler1" else InThread)(FakeEngine, options)

    with hosted_over(tmp_path, make_worker, SETTINGS, plans=plans_of(trainers=1, samplers=1)) as host:
        watched = Watched(host, HeldEngine())
        told, info = watched.status()["workers"], metrics_of(host)["cookhouse_worker_info"]
        watched.operator.close()
        watched.tenant.close()
    assert [one["node"] for one in told] == [None, "10.0.0.7"]
    assert info == {
        "node=,samples=false,trains=true,worker=trainer0": 1.0,
        "node=10.0.0.7,samples=true,trains=false,worker=sampler1": 1.0,
    }


def test_models_stand_with_the_worker_that_has_them(two: Watched) -> None:
    """Would catch an id of one tenant in what another is told, and a model without a place."""
    mine = two.operator.model(two.operator.session())
    theirs = two.tenant.model(two.tenant.session())
    told = two.status(OPERATOR)
    places = {name: one["name"] for one in told["workers"] for name in one["model_ids"]}
    assert places.keys() == {mine, theirs}
    assert set(places.values()) == {"worker0", "worker1"}, "a new model goes where there are fewest"
    assert {row["model_id"]: row["worker"] for row in told["models"]["listed"]} == places
    seen = two.status(TENANT)["workers"]
    assert [one["num_models"] for one in seen] == [1, 1]
    assert [name for one in seen for name in one["model_ids"]] == [theirs]


def test_what_is_with_a_worker_is_its_queue_and_our_question_is_not(two: Watched, engines: list[HeldEngine]) -> None:
    model_id = two.operator.model(two.operator.session())
    (place,) = [one["name"] for one in two.status()["workers"] if one["num_models"]]
    for engine in engines:
        engine.free.clear()
    for seq_id in (1, 2):
        two.operator.forward_backward(model_id, seq_id)

    def queues() -> dict[str, tuple[int, int]]:
        return {one["name"]: (one["num_commands"], one["num_tokens"]) for one in two.status()["workers"]}

    wait_until(lambda: queues()[place] == (2, 4))
    assert [queue for name, queue in queues().items() if name != place] == [(0, 0)]
    busy = {one["name"]: one["turn"] for one in two.status()["workers"]}
    assert busy[place]["kind"] == "train"
    for engine in engines:
        engine.free.set()
    wait_until(lambda: all(queue == (0, 0) for queue in queues().values()))


def test_what_no_worker_has_is_counted_apart(tmp_path: Path, engines: list[HeldEngine]) -> None:
    """Would catch requests that stand in no queue, and those of a worker that are counted once more."""
    settings = replace(SETTINGS, gap_seconds=3600.0)
    with serving(tmp_path, engines, plans_of(workers=2), settings) as two:
        model_id = two.operator.model(two.operator.session())
        for engine in engines:
            engine.free.clear()
        two.operator.forward_backward(model_id, 2)  # the first has not come
        sample(two.operator, two.operator.session(), 3)
        pool = two.host.service.pool
        holder = next(worker for worker in pool.workers if worker.commands)
        assert two.status(TENANT)["waiting"] == {"num_training_requests": 1, "num_samples": 0, "num_models": 0}

        moved = next(iter(holder.commands.values()))
        two.host.on_loop(lambda: holder.pop(moved.command.command_id))
        trainer = next(worker for worker in pool.workers if pool.placement.models_of(worker))
        two.host.on_loop(lambda: pool.placement.remove_worker(trainer))
        assert two.status()["waiting"] == {"num_training_requests": 1, "num_samples": 1, "num_models": 1}
        two.host.on_loop(lambda: holder.put(moved))


def test_a_worker_that_computes_all_the_time_is_busy(two: Watched, engines: list[HeldEngine]) -> None:
    """Would catch a share that only turns which are over count for, and one that is of the wrong worker."""
    model_id = two.operator.model(two.operator.session())
    for engine in engines:
        engine.free.clear()
    two.operator.forward_backward(model_id, 1)
    wait_until(lambda: any(one["turn"] for one in two.status()["workers"]))

    def shares() -> list[tuple[int, float]]:
        return sorted((one["num_models"], one["utilization"] or 0.0) for one in two.status()["workers"])

    wait_until(lambda: shares()[1][1] > 0.5)
    idle, held = shares()
    assert (idle[0], held[0]) == (0, 1)
    assert idle[1] < 0.5 < held[1] <= 1.0


def test_samples_of_all_workers_are_summed(two: Watched, engines: list[HeldEngine]) -> None:
    """Would catch sequences of the first worker alone."""
    owner = two.host.service.keys.operator
    for number, engine in enumerate(engines):
        use = replace(CACHE, running={owner: number + 1}, waiting={owner: 1})
        engine.memory_use = lambda use=use: MemoryUse(caches=(use,))  # type: ignore[method-assign, misc]
        engine.free.clear()
    sample(two.operator, two.operator.session(), 3)
    (row,) = two.status()["samples"]
    assert (row["num_requests"], row["num_running_sequences"], row["num_waiting_sequences"]) == (3, 3, 2)


def test_workers_that_are_added_and_drained_come_and_go(two: Watched) -> None:
    """Would catch a row of a worker that is no more, and one that is there before the next start alone."""
    model_id = two.operator.model(two.operator.session())
    place = two.status()["models"]["listed"][0]["worker"]
    assert two.operator.post("/workers") == {"name": "worker2", "trains": True, "samples": True}
    wait_until(lambda: [one["is_up"] for one in two.status()["workers"]] == [True] * 3)
    two.operator.post(f"/workers/{place}/drain", seconds=30)
    wait_until(lambda: len(two.status()["workers"]) == 2)
    names = [one["name"] for one in two.status()["workers"]]
    assert place not in names
    assert "worker2" in names
    wait_until(lambda: two.status()["models"]["listed"][0]["worker"] in names)
    assert two.operator.grad_norm(model_id, 1) == 0.0
    assert f"worker={place}" not in metrics_of(two.host)["cookhouse_worker_up"]


def test_a_lost_worker_is_named_and_its_neighbour_goes_on(two: Watched) -> None:
    two.status()
    two.host.service.pool.workers[1].life.lose("killed by signal 9")
    told = two.status()
    assert [one["num_losses"] for one in told["workers"]] == [0, 1]
    (trouble,) = told["troubles"]
    assert trouble.startswith("worker1 was lost")
    assert "killed by signal 9" in trouble
    assert [one["last_loss"] and one["last_loss"]["reason"] for one in two.status(TENANT)["workers"]] == [None, None]


def test_a_worker_is_in_one_of_four_states(two: Watched) -> None:
    """Would catch a first start that is told as a loss, and a page and a list that call one state two names."""
    worker = two.host.service.pool.workers[1]

    def state() -> str:
        return str(two.status()["workers"][1]["state"])

    assert state() == "up"
    worker.is_up = False
    assert state() == "starting"
    worker.life.lose("a test")
    assert state() == "restarting"
    worker.is_draining = True
    assert state() == "draining"
    worker.is_up, worker.is_draining = True, False


def test_a_worker_that_cannot_be_started_again_was_lost_once(two: Watched) -> None:
    """Would catch a worker that was "lost 3 s ago" for an hour, of which nobody is told how it was lost."""
    life = two.host.service.pool.workers[1].life
    life.lose("killed by signal 9")
    for _ in range(2):
        life.fail("no memory is left")
    told = two.status()["troubles"]
    assert len(told) == 2
    assert told[0].startswith("worker1 was lost")
    assert "killed by signal 9" in told[0]
    assert told[1].startswith("worker1 failed to restart")
    assert "no memory is left" in told[1]
    life.begin("a CPU")
    assert two.status()["workers"][1]["failed_start"] is None


def test_prometheus_has_the_figures_of_each_worker(two: Watched, engines: list[HeldEngine]) -> None:
    """Would catch a metric without the worker that it is of, and labels that Prometheus cannot read."""
    for engine in engines:
        engine.memory_use = lambda: MemoryUse(caches=(CACHE,), device_bytes=5)  # type: ignore[method-assign]
    two.operator.model(two.operator.session())
    two.host.service.pool.workers[1].life.lose("a test")
    found = metrics_of(two.host)
    each = {"worker=worker0", "worker=worker1"}
    assert found["cookhouse_worker_up"] == dict.fromkeys(each, 1.0)
    assert found["cookhouse_worker_losses_total"] == {"worker=worker0": 0.0, "worker=worker1": 1.0}
    assert found["cookhouse_worker_models"] == {"base_model=cookhouse/tiny,worker=worker0": 1.0}
    assert found["cookhouse_models"] == {"base_model=cookhouse/tiny": 1.0}
    assert found["cookhouse_worker_device_memory_bytes"] == dict.fromkeys(each, 5.0)
    assert found["cookhouse_worker_cache_used_bytes"]["base_model=cookhouse/tiny,worker=worker1"] == 1024.0
    assert found["cookhouse_worker_cache_max_bytes"]["base_model=cookhouse/tiny,worker=worker1"] == 3072.0
    assert set(found["cookhouse_worker_busy_seconds_total"]) == {
        f"kind={kind},{worker}" for kind in ("train", "sample", "other") for worker in each
    }
    for name in ("snapshots", "queued_commands", "queued_tokens", "memory_bytes"):
        assert found[f"cookhouse_worker_{name}"].keys() == each


def test_every_metric_is_in_the_page_and_no_other(two: Watched, engines: list[HeldEngine]) -> None:
    for engine in engines:
        engine.memory_use = lambda: MemoryUse(caches=(CACHE,), device_bytes=5)  # type: ignore[method-assign]
    two.operator.model(two.operator.session())
    text = (Path(__file__).parents[3] / "docs" / "reference" / "server-status.md").read_text(encoding="utf-8")
    rows = [line.split("|")[1] for line in text.splitlines() if line.startswith("| `cookhouse_")]
    explained = {name for row in rows for name in row.replace("`", "").replace(",", " ").split()}
    of_several_servers = {"cookhouse_servers"}
    assert metrics_of(two.host).keys() | of_several_servers == explained
