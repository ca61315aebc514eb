"""Requests as SDKs before 0.25 write them, each form by a name."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import httpx

JSON_ONLY = {"Accept": "application/json"}
"""Of SDKs before 0.18."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """How a pass is written."""

    route: str = "forward_backward"
    has_types: bool = True
    """Whether chunks have a `type`, and tensors a `shape`."""
    is_sparse: bool = False
    has_seq_id: bool = True
    headers: Mapping[str, str]
    """Of the request for its result."""

    def body(self, model_id: str, seq_id: int, token: int = 2) -> dict[str, Any]:
        """A pass over two tokens, which hangs on the token."""
        chunk: dict[str, Any] = {"tokens": [1, token]}
        targets: dict[str, Any] = {"data": [token, 3], "dtype": "int64"}
        weights: dict[str, Any] = {"data": [1.0, 0.5], "dtype": "float32"}
        if self.has_types:
            chunk["type"], targets["shape"], weights["shape"] = "encoded_text", [2], [2]
        if self.is_sparse:
            of_two = {"shape": [2, 1], "sparse_crow_indices": [0, 1, 2], "sparse_col_indices": [0, 0]}
            targets, weights = targets | of_two, weights | of_two
        datum = {
            "model_input": {"chunks": [chunk]},
            "loss_fn_inputs": {"target_tokens": targets, "weights": weights},
        }
        content = {"model_id": model_id, f"{self.route}_input": {"data": [datum], "loss_fn": "cross_entropy"}}
        return {**content, "seq_id": seq_id} if self.has_seq_id else content

    def send(self, http: httpx.Client, model_id: str, seq_id: int, token: int = 2) -> httpx.Response:
        headers = {} if self.has_seq_id else {"X-Idempotency-Key": f"{self.route}-{seq_id}"}
        return http.post(f"/{self.route}", json=self.body(model_id, seq_id, token), headers=headers)

    def result(self, http: httpx.Client, request_id: str) -> httpx.Response:
        return http.post("/retrieve_future", json={"request_id": request_id}, headers=self.headers)


FORMS = {
    "0.16": Form(has_types=False, headers=JSON_ONLY),
    "0.18": Form(headers={"Accept": "application/x-protobuf, application/json"}),
    "0.18 sparse": Form(is_sparse=True, headers={"Accept": "application/x-protobuf, application/json"}),
    "without seq_id": Form(has_types=False, has_seq_id=False, headers=JSON_ONLY),
}
FORWARD = Form(route="forward", has_types=False, headers=JSON_ONLY)
