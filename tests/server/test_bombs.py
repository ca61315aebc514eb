"""Small requests that would be large ones: refused before they are built, and held against nobody but their sender."""

import json
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import zstandard
from tests.server.fake_engine import FakeEngine
from tests.server.hosting import KEY, OTHER_KEY, Host, hosted
from tinker.proto import tinker_public_pb2 as pb

from cookhouse.engine.contract import ForwardBackward, ForwardBackwardOutput
from cookhouse.errors import InputError
from cookhouse.server.settings import Settings

MANY = 2**20
ZSTD = {"Content-Encoding": "zstd"}


class Held(FakeEngine):
    """Runs no pass before it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.is_free = threading.Event()

    def forward_backward(self, requests: Sequence[ForwardBackward]) -> Sequence[ForwardBackwardOutput | InputError]:
        assert self.is_free.wait(30)
        return super().forward_backward(requests)


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    with hosted(tmp_path_factory.mktemp("state"), FakeEngine) as host:
        yield host


class Client:
    """One tenant: raw HTTP, a model and a sampler."""

    def __init__(self, host: Host, key: str) -> None:
        headers = {"X-API-Key": key, "Authorization": f"Bearer {key}"}
        self.http = httpx.Client(base_url=host.url, headers=headers, timeout=60, trust_env=False)
        session: dict[str, Any] = {"tags": [], "user_metadata": None, "sdk_version": "0.38.0"}
        self._session_id = self.post("create_session", session).json()["session_id"]
        model = {"session_id": self._session_id, "model_seq_id": 0, "base_model": "cookhouse/tiny"}
        self.model_id = self.post("create_model", model).json()["model_id"]
        sampler = {"session_id": self._session_id, "sampling_session_seq_id": 0, "base_model": "cookhouse/tiny"}
        self.sampler_id = self.post("create_sampling_session", sampler).json()["sampling_session_id"]

    def close(self) -> None:
        self.http.close()

    def post(self, route: str, body: Mapping[str, Any]) -> httpx.Response:
        return self.http.post(f"/api/v1/{route}", json=body)

    def train(self, body: bytes, **headers: str) -> httpx.Response:
        headers = {"Content-Type": "application/x-protobuf", **headers}
        return self.http.post("/api/v1/forward_backward", content=body, headers=headers)

    def result(self, answer: httpx.Response) -> Any:
        request_id = answer.json()["request_id"]
        return self.post("retrieve_future", {"request_id": request_id}).json()

    def sample(self, **changes: Any) -> dict[str, Any]:
        return {
            "sampling_session_id": self.sampler_id,
            "seq_id": 1,
            "num_samples": 1,
            "prompt": {"chunks": [{"type": "encoded_text", "tokens": [1, 2]}]},
            "sampling_params": {"max_tokens": 1, "stop": []},
            **changes,
        }


@pytest.fixture
def client(host: Host) -> Iterator[Client]:
    with closing(Client(host, KEY)) as client:
        yield client


@pytest.mark.parametrize("is_packed", [True, False])
def test_many_empty_messages_are_refused(host: Host, client: Client, is_packed: bool) -> None:
    """Would catch a body of 3 kB that takes gigabytes, and keeps the server from answering meanwhile."""
    body = pb.ForwardBackwardRequest(model_id=client.model_id, seq_id=1).SerializeToString() + b"\x1a\x00" * MANY
    if is_packed:
        body = zstandard.ZstdCompressor().compress(body)
        assert len(body) < 1000
    answer = client.train(body, **(ZSTD if is_packed else {}))
    assert answer.status_code == 413
    assert "more than 262144 fields" in answer.json()["detail"]
    assert not host.service.sequencer.held._by_owner


@pytest.mark.parametrize("value", ["[]", "{}", "1", '""'])
def test_many_small_values_are_refused(host: Host, client: Client, value: str) -> None:
    """Would catch JSON of a few bytes compressed that is read into gigabytes."""
    many = ",".join([value] * (MANY + 2))
    text = json.dumps(client.sample())[:-1] + f', "x": [{many}]}}'
    body = zstandard.ZstdCompressor().compress(text.encode())
    answer = client.http.post("/api/v1/asample", content=body, headers=ZSTD)
    assert answer.status_code == 413
    assert "the request has more than" in answer.json()["detail"]
    answer = client.http.post("/v1/chat/completions", content=body, headers=ZSTD)
    assert answer.status_code == 413
    assert "the request has more than" in answer.json()["error"]["message"]
    assert not host.service.sequencer.held._by_owner


def sparse(model_id: str, seq_id: int, num_cells: int) -> bytes:
    """One value in a tensor of many cells."""
    message = pb.ForwardBackwardRequest(model_id=model_id, seq_id=seq_id, loss_fn="cross_entropy")
    datum = message.data.add()
    datum.model_input.add().encoded_text.tokens = np.array([1, 2], dtype="<i4").tobytes()
    tensor = datum.loss_fn_inputs["weights"]
    tensor.dtype = pb.DTYPE_FLOAT32
    tensor.shape.extend([1, num_cells])
    tensor.sparse_csr.values = np.ones(1, dtype="<f4").tobytes()
    tensor.sparse_csr.crow_indices = np.array([0, 1], dtype="<i8").tobytes()
    tensor.sparse_csr.col_indices = np.array([0], dtype="<i8").tobytes()
    return message.SerializeToString()


def test_one_tenants_full_queue_is_its_own_affair(tmp_path: Path) -> None:
    """Would catch tensors that are queued as a few bytes and held as megabytes, and a tenant that fills it for all."""
    engine = Held()
    settings = Settings(max_queued_bytes=2**20, gap_seconds=0.0)
    with (
        hosted(tmp_path, lambda: engine, settings) as host,
        closing(Client(host, KEY)) as one,
        closing(Client(host, OTHER_KEY)) as other,
    ):
        accepted = [one.train(sparse(one.model_id, seq_id, 2**16)) for seq_id in range(1, 4)]
        assert [answer.status_code for answer in accepted] == [200, 200, 200]
        refused = one.train(sparse(one.model_id, 4, 2**16))
        assert refused.status_code == 429
        assert "bytes of your requests wait, of at most 1048576" in refused.json()["detail"]
        assert other.train(sparse(other.model_id, 1, 2**16)).status_code == 200
        sampled = one.post("asample", one.sample(prompt={"chunks": [{"tokens": [1] * 40_000}]}))
        assert sampled.status_code == 429
        engine.is_free.set()
        assert "target_tokens is missing" in one.result(accepted[-1])["error"]
        until = time.monotonic() + 30
        while host.service.sequencer.held._by_owner and time.monotonic() < until:
            time.sleep(0.01)
        assert not host.service.sequencer.held._by_owner
        assert one.train(sparse(one.model_id, 4, 2**16)).status_code == 200
