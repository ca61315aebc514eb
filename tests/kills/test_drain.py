"""SIGTERM to a server with work queued: what was accepted is answered, or restored by the next server."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tinker
from tinker import types

from tests.contract.calls import ADAM, PROMPT, datum, new_trainer
from tests.kills.server import KEYS, KeptServer
from tests.kills.weights import Weights, different_weights, saved_weights

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("fused_sampling")]

NUM_PASSES, NUM_SAMPLES = 20, 200


@dataclass(frozen=True)
class Ended:
    """What clients were told, to the bit."""

    losses: Sequence[float]
    norm: float
    path: str
    samples: Sequence[Sequence[int]]


def work(server: KeptServer, num_signals: int) -> Ended:
    """Queue passes, samples and a save, send signals while they wait, and wait for all."""
    with tinker.ServiceClient(base_url=server.url, api_key=KEYS[0]) as client:
        trainer = new_trainer(client)
        sampler = trainer.save_weights_and_get_sampling_client().result()
        chance = np.random.default_rng(5)
        data = [[datum(chance.integers(1, 500, 200).tolist()) for _ in range(16)] for _ in range(NUM_PASSES)]
        passes = [trainer.forward_backward(batch, "cross_entropy") for batch in data]
        stepped = trainer.optim_step(ADAM)
        saved = trainer.save_state("queued")
        samples = [
            sampler.sample(PROMPT, 1, types.SamplingParams(max_tokens=64, seed=seed, stop=[]))
            for seed in range(NUM_SAMPLES)
        ]
        passes[0].result()
        for _ in range(num_signals):
            count = server.terminate()
        if num_signals:
            server.wait_for_start(count)
        losses = [each.result().metrics["loss:sum"] for each in passes]
        metrics: Any = stepped.result().metrics
        path = saved.result().path.split("/", 3)[-1]
        tokens = [each.result().sequences[0].tokens for each in samples]
    return Ended(losses, metrics["grad_norm"], path, tokens)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Ended, Weights]:
    folder = tmp_path_factory.mktemp("undisturbed")
    with KeptServer(folder, ["--precision", "float32"]) as server:
        server.wait_until_ready()
        return work(server, 0), saved_weights(server.checkpoints())


@pytest.mark.parametrize(
    "num_signals", [pytest.param(1, id="one signal"), pytest.param(2, id="two signals", marks=pytest.mark.long)]
)
def test_what_was_accepted_is_answered_though_the_server_is_told_to_stop(
    tmp_path: Path, undisturbed: tuple[Ended, Weights], num_signals: int
) -> None:
    """Would catch a stop that forgets what waits, runs it again, or never comes since clients hold connections."""
    expected, whole = undisturbed
    with KeptServer(tmp_path, ["--precision", "float32"]) as server:
        server.wait_until_ready()
        ended = work(server, num_signals)
        assert server.exit_codes == [0]
        saved = saved_weights(server.checkpoints())
    assert ended == expected
    assert different_weights(saved, whole) is None
