"""Requests as the published SDK sends them, recorded once, to be sent again with other identities."""

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from bench.trivial_server import Receive, Send, Trivial
from tinker.proto import tinker_public_pb2 as pb

from cookhouse.engine.simulated import Costs
from cookhouse.server.access.connections import Connections, limits_of
from cookhouse.server.access.serving import make_server
from cookhouse.server.main import bind

_FREE = Costs(pass_seconds=0, pass_token_seconds=0, step_seconds=0, decode_seconds=0, save_seconds=0)
_OWN_HEADERS = {b"host", b"content-length", b"x-api-key", b"connection"}
"""Those of a connection, or of a tenant."""


@dataclass(frozen=True, slots=True)
class Recorded:
    path: str
    headers: bytes
    """As they go over the wire, less those of a connection or a tenant."""
    body: bytes
    content: Mapping[str, Any] | None = field(default=None)
    """Of a body in JSON."""

    def with_fields(self, **fields: Any) -> bytes:
        """The body with other values, by the names of the protocol."""
        if self.content is not None:
            return json.dumps({**self.content, **fields}).encode()
        # Of a field that stands twice in a message the last one counts.
        return self.body + pb.ForwardBackwardRequest(**fields).SerializeToString()


class _Recorder:
    """An ASGI application that keeps what comes, and has the trivial server answer it."""

    def __init__(self, num_sequences: int, num_tokens: int, max_tokens: int) -> None:
        self.kept: dict[str, Recorded] = {}
        """The last one of each route."""
        self._inner = Trivial(_FREE, shape=(num_sequences, num_tokens), max_tokens=max_tokens)

    async def __call__(self, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        body, has_more = b"", True
        while has_more:
            message = await receive()
            body += message.get("body", b"")
            has_more = message.get("more_body", False)
        headers = [(name, value) for name, value in scope["headers"] if name not in _OWN_HEADERS]
        is_json = dict(headers).get(b"content-type") == b"application/json"
        self.kept[scope["path"].rpartition("/")[2]] = Recorded(
            path=scope["path"],
            headers=b"".join(name + b": " + value + b"\r\n" for name, value in headers),
            body=body,
            content=json.loads(body) if is_json else None,
        )
        again: Callable[[], Awaitable[Mapping[str, Any]]] = _Again(body)
        await self._inner(scope, again, send)


class _Again:
    def __init__(self, body: bytes) -> None:
        self._body = body

    async def __call__(self) -> Mapping[str, Any]:
        return {"type": "http.request", "body": self._body}


def record(
    *, num_sequences: int, num_tokens: int, prompt_tokens: int, group_size: int, max_tokens: int
) -> Mapping[str, Recorded]:
    """What the SDK sends for a model, a pass, a step, a publication and a sample: by the last word of its route."""
    import tinker
    from tinker import types

    recorder = _Recorder(num_sequences, num_tokens, max_tokens)
    listener = bind("127.0.0.1", 0)
    server = make_server(recorder, Connections(limits_of(None, None, 20.0), lambda _: False))
    thread = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[listener])), daemon=True)
    thread.start()
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    with tinker.ServiceClient(base_url=url, api_key="tml-bench") as service:
        trainer = service.create_lora_training_client("cookhouse/tiny").result()
        tokens_T = np.arange(num_tokens)
        datum = types.Datum(
            model_input=types.ModelInput.from_ints(tokens_T.tolist()),
            loss_fn_inputs={
                "target_tokens": types.TensorData.from_numpy(tokens_T + 1),
                "weights": types.TensorData.from_numpy(np.ones(num_tokens, np.float32)),
            },
        )
        trainer.optim_step(types.AdamParams(learning_rate=1e-4)).result()
        trainer.forward_backward([datum] * num_sequences, "cross_entropy").result()
        sampler = trainer.save_weights_and_get_sampling_client().result()
        prompt = types.ModelInput.from_ints(list(range(1, prompt_tokens + 1)))
        sampler.sample(prompt, group_size, types.SamplingParams(max_tokens=max_tokens, stop=[-1], seed=1)).result()
    server.should_exit = True
    thread.join(10)
    return recorder.kept
