"""One tenant's requests, in forms that servers of all versions take."""

from collections.abc import Sequence
from typing import Any, Self

import httpx
import numpy as np
from tinker.proto import tinker_public_pb2 as pb

BASE_MODEL = "cookhouse/tiny"
LORA = {"rank": 1, "seed": 1, "train_attn": False, "train_mlp": False}
"""A few thousand parameters, so that folders are small."""


class Client:
    """A connection with a key. Open while a `with` lasts."""

    def __init__(self, url: str, key: str) -> None:
        self.http = httpx.Client(
            base_url=f"{url}/api/v1", headers={"X-API-Key": key}, timeout=120, trust_env=False, follow_redirects=True
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.http.close()

    def get(self, route: str) -> Any:
        return _content(self.http.get(route))

    def post(self, route: str, /, **content: Any) -> Any:
        return _content(self.http.post(route, json=content))

    def answer(self, request_id: str) -> bytes:
        """What a request ended with, as it comes; it is asked for until it is there."""
        while True:
            answer = self.http.post("/retrieve_future", json={"request_id": request_id})
            if answer.status_code != 408:
                assert answer.status_code == 200, answer.text
                return answer.content

    def session(self, **content: Any) -> str:
        made = self.post("/create_session", tags=[], user_metadata=None, sdk_version="0.38.0", **content)
        return str(made["session_id"])

    def model(self, session_id: str, number: int = 0) -> str:
        """A new model, the session's of that number."""
        made = self.post(
            "/create_model", session_id=session_id, model_seq_id=number, base_model=BASE_MODEL, lora_config=LORA
        )
        self.answer(made["request_id"])
        return str(made["model_id"])

    def loaded(self, session_id: str, number: int, path: str) -> str:
        """A model of weights and optimizer of a checkpoint."""
        made = self.post("/load_weights", session_id=session_id, model_seq_id=number, path=path, optimizer=True)
        self.answer(made["request_id"])
        return str(made["model_id"])

    def send_pass(self, model_id: str, seq_id: int, tokens_T: Sequence[int]) -> str:
        message = pb.ForwardBackwardRequest(model_id=model_id, seq_id=seq_id, loss_fn="cross_entropy")
        datum = message.data.add()
        datum.model_input.add().encoded_text.tokens = np.array(tokens_T[:-1], dtype="<i4").tobytes()
        targets = pb.Tensor(dtype=pb.DTYPE_INT64, dense=np.array(tokens_T[1:], dtype="<i8").tobytes())
        datum.loss_fn_inputs["target_tokens"].CopyFrom(targets)
        sent = self.http.post("/forward_backward", content=message.SerializeToString())
        return str(_content(sent)["request_id"])

    def send_step(self, model_id: str, seq_id: int) -> str:
        accepted = self.post("/optim_step", model_id=model_id, seq_id=seq_id, adam_params={"learning_rate": 0.01})
        return str(accepted["request_id"])

    def send_save(self, model_id: str, seq_id: int, name: str, *, kind: str = "save_weights", **content: Any) -> str:
        accepted = self.post(f"/{kind}", model_id=model_id, seq_id=seq_id, path=name, **content)
        return str(accepted["request_id"])

    def send_sample(self, sampler_id: str, seq_id: int) -> str:
        accepted = self.post(
            "/asample",
            sampling_session_id=sampler_id,
            seq_id=seq_id,
            num_samples=2,
            prompt={"chunks": [{"type": "encoded_text", "tokens": [1, 2, 3]}]},
            sampling_params={"max_tokens": 4, "seed": 1},
        )
        return str(accepted["request_id"])

    def send_pending(self, model_id: str, seq_id: int, name: str) -> list[str]:
        """Two passes, a step, and a checkpoint of each kind: their request ids. `seq_id` is that of the first."""
        return [
            self.send_pass(model_id, seq_id, [3, 5, 7, 9]),
            self.send_pass(model_id, seq_id + 1, [9, 2, 4]),
            self.send_step(model_id, seq_id + 2),
            self.send_save(model_id, seq_id + 3, name),
            self.send_save(model_id, seq_id + 4, name, kind="save_weights_for_sampler"),
        ]


def _content(answer: httpx.Response) -> Any:
    assert answer.status_code == 200, answer.text
    return answer.json()
