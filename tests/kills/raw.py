"""Requests below the SDK, sent again until they are answered, as it does."""

import json
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Self

import httpx
import numpy as np
from tinker.proto import tinker_public_pb2 as pb

from tests.kills.server import KEYS, KeptServer
from tests.waiting import PATIENCE_SECONDS

LORA = {"rank": 8, "seed": 1}
_PAUSE_SECONDS = 0.05


class Raw:
    """One tenant's connection, with a model of its own. Runs while a `with` lasts."""

    def __init__(self, server: KeptServer) -> None:
        self.server = server
        headers = {"X-API-Key": KEYS[0]}
        self.http = httpx.Client(base_url=f"{server.url}/api/v1", headers=headers, timeout=60, trust_env=False)
        self.statuses: list[int] = []
        """Of all answers that were not 200."""
        session: dict[str, Any] = {"tags": [], "user_metadata": None, "sdk_version": "0.38.0"}
        self.session_id = str(self.post("create_session", session)["session_id"])
        model = {"session_id": self.session_id, "model_seq_id": 0, "base_model": "cookhouse/tiny", "lora_config": LORA}
        created = self.post("create_model", model)
        self.model_id = str(created["model_id"])
        self.result(created["request_id"])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.http.close()

    def post(self, route: str, content: Any) -> Any:
        """What a request is answered, however often it has to be sent."""
        return self.until(lambda: self.http.post(f"/{route}", **_body(content))).json()

    def until(self, send: Callable[[], httpx.Response]) -> httpx.Response:
        """Send until the answer is no 5xx, 408 or 429, and no connection fails."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < deadline:
            with suppress(httpx.TransportError):
                answer = send()
                if answer.status_code == 200:
                    return answer
                self.statuses.append(answer.status_code)
                assert answer.status_code >= 500 or answer.status_code in {408, 429}, answer.text
            time.sleep(_PAUSE_SECONDS)
        raise AssertionError(f"no answer; the server's log:\n{self.server.tail()}")

    def result(self, request_id: str) -> bytes:
        """The result of a request, as it comes."""
        return self.until(lambda: self.http.post("/retrieve_future", json={"request_id": request_id})).content

    def passing(self, seq_id: int, token: int = 2, num_tokens: int = 2) -> bytes:
        """The body of a pass, whose gradient hangs on the token."""
        message = pb.ForwardBackwardRequest(model_id=self.model_id, seq_id=seq_id, loss_fn="cross_entropy")
        datum = message.data.add()
        tokens_T = (np.arange(num_tokens) + token) % 60 + 1
        datum.model_input.add().encoded_text.tokens = tokens_T.astype("<i4").tobytes()
        targets = pb.Tensor(dtype=pb.DTYPE_INT64, dense=(tokens_T + 1).astype("<i8").tobytes())
        datum.loss_fn_inputs["target_tokens"].CopyFrom(targets)
        return message.SerializeToString()

    def stepping(self, seq_id: int, learning_rate: float = 0.01) -> dict[str, Any]:
        return {"model_id": self.model_id, "seq_id": seq_id, "adam_params": {"learning_rate": learning_rate}}

    def send_pass(self, seq_id: int, token: int = 2, num_tokens: int = 2) -> str:
        return str(self.post("forward_backward", self.passing(seq_id, token, num_tokens))["request_id"])

    def send_step(self, seq_id: int, learning_rate: float = 0.01) -> str:
        return str(self.post("optim_step", self.stepping(seq_id, learning_rate))["request_id"])

    def state(self, seq_id: int) -> Any:
        """All that the model has learned by now."""
        saved = {"model_id": self.model_id, "seq_id": seq_id, "path": f"state{seq_id}"}
        path = json.loads(self.result(self.post("save_weights", saved)["request_id"]))["path"]
        rows = self.http.get("/checkpoints").json()["checkpoints"]
        assert path in {row["tinker_path"] for row in rows}
        [file] = (self.server.state_dir / "checkpoints").rglob("state.json")
        return json.loads(file.read_text())


def _body(content: Any) -> dict[str, Any]:
    return {"content": content} if isinstance(content, bytes) else {"json": content}
