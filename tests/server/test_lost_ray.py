"""What clients meet when what the engine runs on is gone, on Ray: a pause. Over HTTP, with the SDK, a fake engine."""

import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import tinker
from tests.contract.calls import new_trainer, train
from tests.engine.transports.ray.clusters import ELSEWHERE, ENGINE_DRIVER, TwoNodes
from tests.engine.transports.ray.fixtures import ray_cluster, ray_is_here
from tests.engine.transports.ray.test_losses import below, cluster_below
from tests.kills.nodes import Nodes
from tests.server.fake_engine import FakeEngine
from tests.server.hosting import KEY, Host, hosted_over
from tests.server.test_operating_workers import connected, place_of
from tests.waiting import wait_until

from cookhouse.engine.contract import ForwardBackward, ForwardBackwardOutput
from cookhouse.engine.transports.ray.addresses import LOCAL
from cookhouse.engine.transports.ray.workers import RayWorkers
from cookhouse.errors import InputError
from cookhouse.server.settings import Settings

__all__ = ["ray_cluster", "ray_is_here"]
pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("ray_is_here")]
PROMPT = tinker.ModelInput.from_ints([1, 2, 3])
PARAMS = tinker.SamplingParams(max_tokens=20, seed=5, stop=[])


class SlowPasses(FakeEngine):
    """Takes its time, so that a kill meets training under way."""

    def forward_backward(self, requests: Sequence[ForwardBackward]) -> Sequence[ForwardBackwardOutput | InputError]:
        time.sleep(0.25)  # a head that is gone is noticed after some seconds
        return super().forward_backward(requests)


def slow_passes(workers: RayWorkers) -> RayWorkers:
    workers.engine_options = {"module": SlowPasses.__module__, "name": SlowPasses.__qualname__}
    return workers


def goes_on(host: Host, kill: Callable[[], Any], engines: Callable[[], Sequence[int]]) -> None:
    """Train beside a kill as if nothing had been, and sample from what came of it. `engines` are ids of processes."""
    with tinker.ServiceClient(base_url=host.url, api_key=KEY) as client:
        undisturbed, trainer = new_trainer(client), new_trainer(client)
        expected = train(undisturbed, 20)
        losses: list[float] = []
        ended_at: list[float] = []

        def work() -> None:
            losses.extend(train(trainer, 20))
            ended_at.append(time.time())

        training = threading.Thread(target=work)
        training.start()
        time.sleep(0.2)
        (killed,) = engines()
        kill()
        training.join(240)
        assert losses == expected
        (worker,) = host.service.pool.workers
        assert worker.life.last_loss is not None, "nothing was killed"
        assert worker.life.last_loss.at < ended_at[0], "the kill came too late"
        assert killed not in engines()
        drawn = [
            one.save_weights_and_get_sampling_client().result().sample(PROMPT, 2, PARAMS).result().sequences
            for one in (undisturbed, trainer)
        ]
        assert [each.tokens for each in drawn[0]] == [each.tokens for each in drawn[1]]


@pytest.mark.parametrize("settings", [Settings(), Settings(state_seconds=0.0)], ids=["replayed", "from a state"])
def test_training_goes_on_when_an_actor_on_another_node_is_killed(
    ray_cluster: TwoNodes, tmp_path: Path, caplog: pytest.LogCaptureFixture, settings: Settings
) -> None:
    """Would catch states that stay on the node that is gone."""
    caplog.set_level(logging.CRITICAL, "cookhouse")
    (raylet,) = ray_cluster.second.all_processes["raylet"]

    def engines() -> list[int]:
        return [pid for pid, name in below(raylet.process.pid) if "WorkerActor" in name]

    def kill() -> None:
        (actor,) = engines()
        os.kill(actor, signal.SIGKILL)

    with (
        slow_passes(ray_cluster.workers(ELSEWHERE, ENGINE_DRIVER)) as workers,
        hosted_over(tmp_path, workers, settings) as host,
    ):
        goes_on(host, kill, engines)


def test_training_goes_on_when_the_head_is_killed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Would catch a server that replays into a cluster that is gone."""
    caplog.set_level(logging.CRITICAL, "cookhouse")
    with (
        slow_passes(RayWorkers(LOCAL, command=ENGINE_DRIVER)) as workers,
        hosted_over(tmp_path, workers) as host,
    ):
        first = workers.pid

        def kill() -> None:
            assert first is not None
            (head,) = [pid for pid, name in cluster_below(first).items() if name.endswith("gcs_server")]
            os.kill(head, signal.SIGKILL)

        def engines() -> list[int]:
            assert workers.pid is not None
            return [pid for pid, name in cluster_below(workers.pid).items() if "WorkerActor" in name]

        goes_on(host, kill, engines)
        assert workers.pid != first


def test_training_goes_on_when_the_head_of_a_joined_cluster_is_killed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Would catch a server that is not on the cluster which came in place of that one, or replays in it twice."""
    caplog.set_level(logging.CRITICAL, "cookhouse")
    with (
        Nodes(1) as nodes,
        slow_passes(RayWorkers(nodes.address, command=ENGINE_DRIVER, num_cpus=1)) as workers,
        hosted_over(tmp_path, workers) as host,
    ):
        goes_on(host, nodes.kill_head, nodes.actors)


def test_a_worker_is_added_and_drained_on_ray(tmp_path: Path) -> None:
    """Would catch one that finds no place beside the others, and a place that a drained one keeps."""
    with (
        Nodes(2) as nodes,
        ExitStack() as stack,
        slow_passes(RayWorkers(nodes.address, command=ENGINE_DRIVER, num_cpus=1)) as workers,
        hosted_over(tmp_path, workers) as host,
    ):
        server = connected(stack, host)
        model_id = server.model(server.session())
        server.result(server.forward_backward(model_id, 1).json()["request_id"])
        first = place_of(host, model_id)
        (drained,) = nodes.actors()
        server.post("/workers")
        wait_until(lambda: [worker.is_up for worker in host.service.pool.workers] == [True, True])
        server.post(f"/workers/{first}/drain", seconds=60)
        assert server.grad_norm(model_id, 2) > 0, "the gradient of before is there"
        wait_until(lambda: drained not in nodes.actors())
        server.post("/workers")
        wait_until(lambda: len(nodes.actors()) == 2)
