"""The least that answers the SDK: the same endpoints over the same server of HTTP, whose answers are made beforehand.

Each comes as late as a simulated engine would have it. python -m bench.trivial_server COSTS prints its URL, and ends
with its stdin
"""

import asyncio
import json
import os
import sys
import threading
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import numpy as np

from cookhouse.engine.contract import ForwardBackwardOutput, SampledSequence, SampleOutput
from cookhouse.engine.simulated import Costs
from cookhouse.server.access.connections import Connections, limits_of
from cookhouse.server.access.serving import make_server
from cookhouse.server.main import bind
from cookhouse.server.wire import SampleShape, encode_pass, encode_sample

_PREFIX = "/api/v1/"
_JSON, _PROTOBUF = b"application/json", b"application/x-protobuf"
_INFO = {
    "type": "get_info",
    "model_id": "m",
    "model_name": "cookhouse/tiny",
    "model_data": {"arch": "simulated", "model_name": "cookhouse/tiny", "tokenizer_id": "cookhouse/tiny"},
    "is_lora": True,
    "lora_rank": 32,
}
_CANNED: Mapping[str, Mapping[str, Any]] = {
    "client/config": {
        "fwdbwd_max_chunk_len": 1024,
        "fwdbwd_max_chunk_bytes_count": 5_000_000,
        "proto_compress_fwdbwd": False,
        "sample_use_retrieve_futures": False,
    },
    "client/dynamic_config": {"sample_cancel_enabled": True},
    "get_server_capabilities": {"supported_models": [{"model_name": "cookhouse/tiny"}]},
    "create_session": {"type": "create_session", "session_id": "s"},
    "create_sampling_session": {"type": "create_sampling_session", "sampling_session_id": "s:sample:0"},
    "session_heartbeat": {"type": "session_heartbeat"},
    "telemetry": {"status": "accepted"},
    "get_info": _INFO,
}

Receive = Callable[[], Awaitable[Mapping[str, Any]]]
Send = Callable[[Mapping[str, Any]], Awaitable[None]]


class Trivial:
    """An ASGI application. `shape` is of the passes that it will be asked for: sequences and their tokens."""

    def __init__(self, costs: Costs, *, shape: tuple[int, int], max_tokens: int) -> None:
        num_sequences, num_tokens = shape
        self._seconds = {
            "create_model": 0.0,
            "forward_backward": costs.pass_seconds + costs.pass_token_seconds * num_sequences * num_tokens,
            "optim_step": costs.step_seconds,
            "save_weights_for_sampler": costs.save_seconds,
            "asample": costs.decode_seconds * max_tokens,
        }
        logprobs_T = np.zeros(num_tokens, np.float32)
        whole_pass = ForwardBackwardOutput(logprobs_D=[logprobs_T] * num_sequences, metrics={"loss:sum": 1.0})
        sequence = SampledSequence(
            tokens_T=np.zeros(max_tokens, np.int32), logprobs_T=np.zeros(max_tokens, np.float32), is_stopped=False
        )
        sample = encode_sample(SampleOutput(request_id="", sequences=[sequence]), SampleShape())
        self._results: dict[str, tuple[bytes, bytes]] = {
            "create_model": (_body({"type": "create_model", "model_id": "m"}), _JSON),
            "forward_backward": (encode_pass(whole_pass), _PROTOBUF),
            "optim_step": (_body({"type": "optim_step", "metrics": {"grad_norm": 1.0}}), _JSON),
            "save_weights_for_sampler": (
                _body({"type": "save_weights_for_sampler", "sampling_session_id": "s:sample:1"}),
                _JSON,
            ),
            "asample": (sample, _PROTOBUF),
        }
        self._canned = {name: _body(content) for name, content in _CANNED.items()}
        self._free_at = 0.0
        """When the engine that there is not would be done with what was asked of it."""
        self._due: dict[str, float] = {}

    async def __call__(self, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        body = b""
        has_more = True
        while has_more:
            message = await receive()
            body += message.get("body", b"")
            has_more = message.get("more_body", False)
        content, media_type = await self._answer(scope["path"].removeprefix(_PREFIX), body)
        headers = [(b"content-type", media_type), (b"content-length", str(len(content)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": content})

    async def _answer(self, route: str, body: bytes) -> tuple[bytes, bytes]:
        if route in self._seconds:
            return self._accept(route), _JSON
        if route == "retrieve_future":
            request_id = json.loads(body)["request_id"]
            wait_seconds = self._due.pop(request_id) - asyncio.get_running_loop().time()
            if wait_seconds > 0:
                await asyncio.sleep(wait_seconds)
            return self._results[request_id.partition(" ")[0]]
        return self._canned.get(route, b"{}"), _JSON

    def _accept(self, route: str) -> bytes:
        now = asyncio.get_running_loop().time()
        is_sample = route == "asample"
        due = (now if is_sample else max(now, self._free_at)) + self._seconds[route]
        if not is_sample:
            self._free_at = due
        request_id = f"{route} {len(self._due)} {now}"
        self._due[request_id] = due
        answer = {"request_id": request_id, "model_id": "m"}
        return _body(answer | {"sample_sequence_ids": [f"{request_id}-0"]} if is_sample else answer)


def _body(content: Mapping[str, Any]) -> bytes:
    return json.dumps(content).encode()


def main(costs: Costs, shape: tuple[int, int], max_tokens: int) -> None:
    """Serve until the end of stdin."""
    listener = bind("127.0.0.1", 0)
    print(f"http://127.0.0.1:{listener.getsockname()[1]}", flush=True)
    server = make_server(
        Trivial(costs, shape=shape, max_tokens=max_tokens), Connections(limits_of(None, None, 20.0), lambda _: False)
    )
    threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()
    asyncio.run(server.serve(sockets=[listener]))


if __name__ == "__main__":
    options = json.loads(sys.argv[1])
    main(Costs(**options["costs"]), tuple(options["shape"]), options["max_tokens"])
