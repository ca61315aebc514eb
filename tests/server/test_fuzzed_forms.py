"""Ten thousand requests, seeded, near those of old and new SDKs: none finds a fault of the server's.

Each is a good request of some form with parts of it exchanged, left out, repeated or cut, and sent as JSON, as
protobuf, compressed, or as what it is not.
"""

import asyncio
import copy
import json
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
import zstandard
from tests.server.fake_engine import FakeEngine
from tests.server.hosting import KEY, Host, hosted
from tests.server.old_forms import FORMS, FORWARD
from tests.server.test_routes import Server
from tinker.proto import tinker_public_pb2 as pb

from cookhouse.server.settings import Settings
from cookhouse.server.wire import read_json_training

SEED = 20261129
TOGETHER = 16
SETTINGS = Settings(long_poll_seconds=0.05, gap_seconds=0.02, max_body_bytes=2**20)
STRANGE: list[Any] = [
    None, True, -1, 0, 1, 1.5, -0.0, 1e39, 1e308, 2**31, 2**63, 10**400, float("nan"), float("inf"),
    "", "a", "\x00", "é🙂", "x" * 2000, "float32", "int64", "bfloat16", "encoded_text", "image", "dmel", "aGk=",
    "stable_reinforce", "ppo", [], {}, [[]], [None], [1, 2], [1.5, float("nan")], {"a": 1}, [[1]] * 50,
    {"tokens": [1]}, {"data": [1], "dtype": "int64"},
]  # fmt: skip
CUTS = [b"[" * 300, b"9" * 5000, b'"', b"\\u0000", b"\\ud800", b"1e999", b"NaN"]
PROTOBUF = "application/x-protobuf"
TYPES = ["application/json", "application/json", "application/json; charset=utf-8", PROTOBUF, "text/plain", ""]
ACCEPTS = ["application/json", f"{PROTOBUF}, application/json", PROTOBUF, "*/*", "", "text/html, application/json;q=0"]


def _exchange(draw: random.Random, content: Any) -> Any:
    """Exchange, leave out or repeat one part of JSON, at any depth."""
    places: list[tuple[Any, Any]] = []

    def walk(part: Any) -> None:
        keys = part.keys() if isinstance(part, dict) else range(len(part)) if isinstance(part, list) else ()
        for key in keys:
            places.append((part, key))
            walk(part[key])

    walk(content)
    if not places:
        return copy.deepcopy(draw.choice(STRANGE))
    part, key = draw.choice(places)
    kind = draw.random()
    if kind < 0.6:
        part[key] = copy.deepcopy(draw.choice(STRANGE))
    elif kind < 0.75:
        del part[key]
    elif kind < 0.9 and isinstance(part, list):
        part.extend([part[key]] * draw.choice([1, 2, 40]))
    else:
        other, name = draw.choice(places)
        part[key] = copy.deepcopy(other[name]) if name in other or isinstance(other, list) else None
    return content


def _cut(draw: random.Random, body: bytes) -> bytes:
    at = draw.randrange(len(body) + 1)
    kind = draw.random()
    if kind < 0.3:
        return body[:at]
    if kind < 0.6:
        return body[:at] + bytes([draw.randrange(256)]) + body[at + 1 :]
    if kind < 0.8:
        return body[:at] + body[at + draw.randrange(1, 9) :]
    return body[:at] + draw.choice([*CUTS, body]) + body[at:]


def _good(draw: random.Random, ids: dict[str, str]) -> tuple[str, Any]:
    form = draw.choice([*FORMS.values(), FORWARD, FORWARD])
    seq_id = draw.choice([1, 2, draw.randrange(1, 10_000)])
    sample: dict[str, Any] = {
        "sampling_session_id": ids["sampler_id"],
        "seq_id": seq_id,
        "sampling_params": {"max_tokens": 2},
    }
    sample["prompt"] = {"chunks": [{"tokens": [1, 2]}]}
    step = {"model_id": ids["model_id"], "seq_id": seq_id, "adam_params": {"learning_rate": 1e-9}}
    requests: list[tuple[str, Any]] = [
        *([(form.route, form.body(ids["model_id"], seq_id))] * 6),
        (
            "asample",
            {**sample, "sampling_params": {"max_tokens": 2}, "prompt_logprobs": True, "topk_prompt_logprobs": 2},
        ),
        ("optim_step", step),
        ("create_session", {"tags": [], "user_metadata": None, "sdk_version": "0.16.1"}),
        ("create_model", {"session_id": ids["session_id"], "model_seq_id": 0, "lora_config": {"rank": 8}}),
        ("load_weights", {"model_id": ids["model_id"], "path": "tinker://a:train:0/weights/b", "seq_id": seq_id}),
        ("retrieve_future", {"request_id": "train-0", "allow_metadata_only": True}),
        ("weights_info", {"tinker_path": "tinker://a:train:0/weights/b"}),
        ("client/config", {"sdk_version": "0.18.2"}),
    ]
    return draw.choice(requests)


def _request(draw: random.Random, ids: dict[str, str]) -> tuple[str, bytes, dict[str, str]]:
    route, content = _good(draw, ids)
    for _ in range(draw.choice([0, 1, 1, 2, 5])):
        content = _exchange(draw, content)
    body = json.dumps(content).encode()
    headers = {"Content-Type": draw.choice(TYPES), "X-Idempotency-Key": f"{draw.randrange(2000)}"}
    if draw.random() < 0.35:
        body, headers["Content-Type"] = _protobuf(draw, ids), draw.choice([PROTOBUF, PROTOBUF, PROTOBUF, *TYPES])
        route = draw.choice(["forward_backward", "forward_backward", "forward_backward", "forward"])
    if draw.random() < 0.25:
        body = _cut(draw, body)
    if draw.random() < 0.1:
        headers["Content-Encoding"] = draw.choice(["zstd", "zstd", "gzip", "identity"])
        if draw.random() < 0.8:
            body = zstandard.compress(body)
    return route, body, headers


def _protobuf(draw: random.Random, ids: dict[str, str]) -> bytes:
    """A pass with parts exchanged: that of a form of JSON, as far as it can be written."""
    good = FORMS["0.18 sparse" if draw.random() < 0.5 else "0.18"].body(ids["model_id"], draw.randrange(1, 10_000))
    training = read_json_training(json.dumps(good).encode(), forward_only=draw.random() < 0.5)
    message = pb.ForwardBackwardRequest.FromString(training.message)
    for _ in range(draw.choice([0, 1, 2, 4])):
        _change(draw, message)
    return message.SerializeToString()


def _change(draw: random.Random, message: pb.ForwardBackwardRequest) -> None:
    """Exchange one part of it."""
    datum = message.data[0] if message.data else message.data.add()
    tensor = datum.loss_fn_inputs[draw.choice(["weights", "target_tokens", "other"])]
    junk = draw.randbytes(draw.choice([0, 1, 4, 8, 16]))
    changes: tuple[Callable[[], object], ...] = (
        lambda: setattr(message, "seq_id", draw.choice([-1, 0, 2**31 - 1])),
        lambda: setattr(message, "loss_fn", draw.choice(["", "ppo", "x", "stable_reinforce"])),
        lambda: setattr(tensor, "dtype", draw.choice([0, 1, 2, 3, 4, 99])),
        lambda: setattr(tensor, "dense", junk),
        lambda: setattr(tensor.sparse_csr, "col_indices", junk),
        lambda: tensor.shape.append(draw.choice([0, -1, 2, 2**40, 2**62])),
        lambda: message.data.append(datum),
        lambda: setattr(datum.model_input.add().encoded_text, "tokens", junk),
        lambda: setattr(datum.model_input.add().image, "data", junk),
        lambda: message.loss_fn_config_v2["beta"].CopyFrom(pb.LossConfigValue(number=float("nan"))),
        lambda: message.ClearField("data"),
    )
    draw.choice(changes)()


async def _send(host: Host, ids: dict[str, str], number: int) -> Counter[int]:
    """Send so many, and ask for what comes of those that are accepted; how often each status was answered."""
    draw, statuses = random.Random(SEED), Counter[int]()
    waiting = iter([_request(draw, ids) for _ in range(number)])

    async def send_some(http: httpx.AsyncClient, chance: random.Random) -> None:
        for route, body, headers in waiting:
            answer = await http.post(f"/api/v1/{route}", content=body, headers=headers)
            assert answer.status_code < 500, (route, headers, body[:2000], answer.text)
            statuses[answer.status_code] += 1
            if answer.status_code == 200 and "request_id" in answer.json():
                accept = chance.choice(ACCEPTS)
                asked = {"request_id": answer.json()["request_id"]}
                result = await http.post("/api/v1/retrieve_future", json=asked, headers={"Accept": accept})
                assert result.status_code < 500, (route, headers, body[:2000], accept, result.text)
                if result.headers["content-type"] == "application/json":
                    content = json.loads(result.content, parse_constant=_no_constant)
                    assert content.get("category") != "server", (route, headers, body[:2000], content)
            elif answer.status_code >= 400:
                assert answer.json()["detail"]

    async with httpx.AsyncClient(base_url=host.url, headers={"X-API-Key": KEY}, timeout=60, trust_env=False) as http:
        await asyncio.gather(*(send_some(http, random.Random(SEED + one)) for one in range(TOGETHER)))
    return statuses


def _no_constant(name: str) -> None:
    raise AssertionError(f"a result holds {name}")


@pytest.mark.parametrize("number", [500, pytest.param(10_000, marks=pytest.mark.long)])
def test_no_request_is_a_fault(tmp_path: Path, number: int) -> None:
    """Would catch a body that is used before it is checked, and one after which nothing else is served."""
    engine = FakeEngine()
    with hosted(tmp_path, lambda: engine, SETTINGS) as host:
        server = Server(host, engine)
        session_id = server.session()
        sampler = {"session_id": session_id, "sampling_session_seq_id": 0, "base_model": "cookhouse/tiny"}
        ids = {
            "session_id": session_id,
            "model_id": server.model(session_id),
            "sampler_id": str(server.post("/create_sampling_session", **sampler)["sampling_session_id"]),
        }
        statuses = asyncio.run(_send(host, ids, number))
        assert statuses.total() == number
        assert statuses[200] > number // 10  # or it would not come far
        assert statuses[400] > number // 10
        model_id = server.model(server.session())
        server.forward_backward(model_id, 1)
        assert server.grad_norm(model_id, 2) > 0
        server.close()
