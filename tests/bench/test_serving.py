"""What benches and runs count of a real server is at least what its engine says of itself."""

import os
from pathlib import Path

import pytest
import tinker
from bench.harness import serving
from tinker import types

from cookhouse.algorithms.base.estimate import peak_memory
from cookhouse.algorithms.base.process_tree import cpu_seconds, runs_module, tree
from cookhouse.assets import resolve_model

pytestmark = pytest.mark.slow
STEPS = 6


def thread_seconds(pid: int) -> float:
    """Processor time of the threads of a process that are alive."""
    stats = [(task / "stat").read_text().rpartition(")")[2].split() for task in Path(f"/proc/{pid}/task").iterdir()]
    return sum(int(fields[11]) + int(fields[12]) for fields in stats) / os.sysconf("SC_CLK_TCK")


def test_the_engine_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TINKER_TELEMETRY", "0")
    before = cpu_seconds(os.getpid())
    with serving("cpu", "--base-model", resolve_model("cookhouse/tiny")) as server:
        client = tinker.ServiceClient(base_url=server.url, api_key=server.api_key)
        training = client.create_lora_training_client(resolve_model("cookhouse/tiny"), rank=4).result()
        tokens = list(range(10, 200))
        datum = types.Datum(
            model_input=types.ModelInput.from_ints(tokens[:-1]),
            loss_fn_inputs={"target_tokens": tokens[1:], "weights": [1.0] * (len(tokens) - 1)},  # type: ignore[dict-item]
        )
        for _ in range(STEPS):
            training.forward_backward([datum] * 16, "cross_entropy").result()
        (engine,) = [pid for pid in tree(server.process.pid) if runs_module(pid, "cookhouse.engine")]
        seconds = thread_seconds(engine)
        assert seconds > 0.5
        assert cpu_seconds(os.getpid()) - before >= seconds
        said = server.workers()[0]["memory_bytes"]
        assert said > 100 << 20
        assert server.peak_bytes() >= said
        assert peak_memory()["engine_memory_bytes"] >= said
    assert cpu_seconds(os.getpid()) - before >= seconds
