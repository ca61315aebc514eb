"""Requests of one tenant with the names and request ids of another, mangled, on every route with the journal on.

What they give is a 4xx or the sender's own; the other tenant's session is what it was, also after a restart.
"""

import asyncio
import json
import random
from collections.abc import Mapping, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.server.conftest import Place
from tests.server.fake_engine import FakeEngine
from tests.server.hosting import KEY, OTHER_KEY, Host, hosted
from tests.server.test_routes import Server
from tinker.proto import tinker_public_pb2 as pb

from cookhouse.server.settings import Settings
from cookhouse.server.storage.store.store import Store

SETTINGS = Settings(long_poll_seconds=0.1, gap_seconds=0.05, state_seconds=0.0)
SECRET = "the-victims-own-words"
TOGETHER = 16
_PROTOBUF = "application/x-protobuf"
_STRANGE: list[Any] = [
    None, True, -1, 0, 1, 7, 1.5, 2**31, 2**63, 2**64, -(2**63), 10**30, "", "a", "\x00", "é🙂", "../../etc/passwd",
    "%00", "x" * 5000, [], {}, [[]], {"a": {"b": [1]}}, [None], "tinker://a:train:0/weights/b", "'; drop table entries",
]  # fmt: skip

_INPUT = {
    "data": [
        {
            "model_input": {"chunks": [{"tokens": [1, 2]}]},
            "loss_fn_inputs": {"target_tokens": {"data": [2, 3], "dtype": "int64"}},
        }
    ],
    "loss_fn": "cross_entropy",
}
Ids = Mapping[str, Any]
"""What a tenant has, by what the fields and parts of paths call it."""


def _posts(ids: Ids) -> dict[str, dict[str, Any]]:
    """A good request of each route."""
    model = {"model_id": ids["model_id"]}
    sampler = {"sampling_session_id": ids["sampler_id"]}
    session = {"session_id": ids["session_id"]}
    target = {"sampling_session_id": ids["sampler_id"], "cloned_sampler_id": 0}
    return {
        "/create_session": {"tags": [], "user_metadata": {"a": "b"}, "sdk_version": "0.38.0", "display_name": "n"},
        "/session_heartbeat": session,
        "/create_model": {**session, "model_seq_id": 3, "base_model": "cookhouse/tiny", "user_metadata": {"a": "b"}},
        "/load_weights": {**session, "model_seq_id": 4, "path": ids["path"], "optimizer": True},
        "/forward": {**model, "seq_id": 8, "forward_input": _INPUT},
        "/optim_step": {**model, "seq_id": 9, "adam_params": {"learning_rate": 1.0}},
        "/save_weights": {**model, "seq_id": 9, "path": "first", "overwrite": True, "ttl_seconds": 3600},
        "/save_weights_for_sampler": {**model, "seq_id": 9, "sampling_session_seq_id": 5, "kind": "snapshot"},
        "/save_weights_external": {**model, "seq_id": 9, "path": "x"},
        "/get_info": model,
        "/weights_info": {"tinker_path": ids["path"]},
        "/create_sampling_session": {**session, "sampling_session_seq_id": 6, "model_path": ids["path"]},
        "/asample": {
            **sampler,
            "seq_id": 1,
            "num_samples": 1,
            "prompt": {"chunks": [{"type": "encoded_text", "tokens": [1, 2]}]},
            "sampling_params": {"max_tokens": 1, "stop": []},
        },
        "/retrieve_future": {"request_id": ids["request_id"]},
        "/retrieve_futures": {"target": target, "prev_cursor": 0, "retrieved_request_ids": [ids["request_id"]]},
        "/cancel_future": {"request_id": ids["request_id"]},
        "/copy_weights": {"source_path": ids["path"], "destination_project_id": "p"},
        "/sessions/search": {**session, "limit": 5},
        f"/sessions/{ids['session_id']}/finish": {"reason": {"type": "success"}},
    }


def _others(ids: Ids) -> list[tuple[str, str, Any]]:
    """Method, route and body of what is no POST, or has its names in the path."""
    session_id, model_id = ids["session_id"], ids["model_id"]
    checkpoint = f"/training_runs/{model_id}/checkpoints/weights/first"
    return [
        ("GET", f"/sessions/{session_id}", None),
        ("GET", f"/sessions/{session_id}/usage", None),
        ("GET", f"/sessions/{session_id}/trace_export", None),
        ("PUT", f"/sessions/{session_id}/project", {"project_id": "p"}),
        ("GET", f"/samplers/{ids['sampler_id']}", None),
        ("GET", f"/training_runs/{model_id}", None),
        ("GET", f"/training_runs/{model_id}/checkpoints", None),
        ("GET", f"{checkpoint}/external_weights_urls", None),
        ("PUT", f"{checkpoint}/ttl", {"ttl_seconds": 3600}),
        ("POST", f"{checkpoint}/publish", None),
        ("DELETE", checkpoint, None),
        ("GET", "/sessions?limit=1000", None),
        ("GET", "/training_runs?limit=1000", None),
        ("GET", "/checkpoints?limit=1000", None),
        ("GET", "/usage", None),
    ]


def _pass(model_id: str, seq_id: int) -> bytes:
    message = pb.ForwardBackwardRequest(model_id=model_id, seq_id=seq_id, loss_fn="cross_entropy")
    datum = message.data.add()
    datum.model_input.add().encoded_text.tokens = b"\x01\0\0\0\x02\0\0\0"
    targets = pb.Tensor(dtype=pb.DTYPE_INT64, dense=b"\x02" + bytes(7) + b"\x03" + bytes(7))
    datum.loss_fn_inputs["target_tokens"].CopyFrom(targets)
    return message.SerializeToString()


def _mangled(draw: random.Random, content: bytes) -> bytes:
    if draw.random() < 0.1:
        at = draw.randrange(len(content) or 1)
        return content[:at] if draw.random() < 0.5 else content[:at] + b"\xff" + content[at + 1 :]
    return content


def _request(draw: random.Random, mine: Ids, theirs: Ids) -> tuple[str, str, bytes]:
    ids = {name: draw.choice([value, theirs[name], theirs[name]]) for name, value in mine.items()}
    kind = draw.random()
    if kind < 0.15:
        return "POST", "/forward_backward", _mangled(draw, _pass(ids["model_id"], draw.randrange(-2, 12)))
    if kind < 0.35:
        method, route, content = draw.choice(_others(ids))
        return method, route, b"" if content is None else _mangled(draw, json.dumps(content).encode())
    route, body = draw.choice(list(_posts(ids).items()))
    body = {name: value for name, value in body.items() if draw.random() > 0.03}
    for name in draw.sample(sorted(body), k=min(len(body), draw.choice([0, 0, 1, 2]))):
        body[name] = draw.choice(_STRANGE)
    return "POST", route, _mangled(draw, json.dumps(body).encode())


async def _send(host: Host, requests: Sequence[tuple[str, str, bytes]], owned: Sequence[str]) -> dict[int, int]:
    """The statuses, by how often. No answer may be a fault, or tell what another tenant owns."""
    statuses: dict[int, int] = {}
    waiting = iter(requests)

    async def send_some(http: httpx.AsyncClient) -> None:
        for method, route, content in waiting:
            headers = {"Content-Type": _PROTOBUF if route == "/forward_backward" else "application/json"}
            answer = await http.request(method, f"/api/v1{route}", content=content, headers=headers)
            statuses[answer.status_code] = statuses.get(answer.status_code, 0) + 1
            assert answer.status_code < 500, (method, route, content, answer.text)
            told = [name for name in owned if name in answer.text and name not in route + content.decode("latin-1")]
            assert not told, (method, route, content, answer.text)

    headers = {"X-API-Key": OTHER_KEY}
    async with httpx.AsyncClient(base_url=host.url, headers=headers, timeout=60, trust_env=False) as http:
        await asyncio.gather(*(send_some(http) for _ in range(TOGETHER)))
    return statuses


class Tenant(Server):
    def begin(self) -> dict[str, Any]:
        """A session with all there can be in one: what it has."""
        words = (
            {"display_name": SECRET, "user_metadata": {"a": SECRET}} if self.http.headers["x-api-key"] == KEY else {}
        )
        session = {"tags": [], "user_metadata": None, "sdk_version": "0.38.0", **words}
        session_id = self.post("/create_session", **session)["session_id"]
        model_id = self.model(session_id)
        self.step(model_id, 1)
        path = self.result(self.post("/save_weights", model_id=model_id, seq_id=3, path="first")["request_id"]).json()
        saved = self.post("/save_weights_for_sampler", model_id=model_id, seq_id=4, sampling_session_seq_id=0)
        sampler = self.result(saved["request_id"]).json()
        return {
            "session_id": session_id,
            "model_id": model_id,
            "path": path["path"],
            "sampler_id": sampler["sampling_session_id"],
            "request_id": self.post("/optim_step", model_id=model_id, seq_id=5, adam_params={})["request_id"],
        }

    def step(self, model_id: str, seq_id: int) -> float:
        """A pass and a step of it; the norm of its gradient depends on all steps before."""
        assert self.http.post("/forward_backward", content=_pass(model_id, seq_id)).status_code == 200
        accepted = self.post("/optim_step", model_id=model_id, seq_id=seq_id + 1, adam_params={"learning_rate": 0.5})
        return float(self.answer(accepted["request_id"])["metrics"]["grad_norm"])

    def result(self, request_id: str) -> httpx.Response:
        while (answer := super().result(request_id)).status_code == 408:  # polls are short, and the machine may be busy
            pass
        return answer

    def answer(self, request_id: str) -> Any:
        answer = self.result(request_id)
        assert answer.status_code == 200, answer.text
        return answer.json()


def _itself(engine: FakeEngine) -> FakeEngine:
    return engine


def _norms(folder: Path) -> list[float]:
    """Of steps 6 and 8 that nobody disturbs."""
    folder.mkdir()
    engine = FakeEngine()
    with hosted(folder, lambda: engine, SETTINGS) as host, closing(Tenant(host, engine)) as tenant:
        model_id = tenant.begin()["model_id"]
        return [tenant.step(model_id, 6), tenant.step(model_id, 8)]


_OWN = (
    "/create_session",
    "/sessions/search",
    "/cancel_future",
    "/sessions",
    "/training_runs",
    "/checkpoints",
    "/usage",
)
"""Routes that answer anybody, of what is its own."""


def _check_refused(attacker: Server, victim: Ids) -> None:
    """Good requests, of what is another's: on each route but those that answer anybody."""
    requests = [("POST", route, body) for route, body in _posts(victim).items()] + _others(victim)
    answers = {
        (method, route): attacker.http.request(method, route, json=body)
        for method, route, body in requests
        if route.split("?")[0] not in _OWN
    }
    answers["POST", "/forward_backward"] = attacker.forward_backward(victim["model_id"], 6)
    taken = {each: answer.text for each, answer in answers.items() if answer.status_code not in (400, 404, 410)}
    assert taken.keys() <= {
        ("POST", f"/sessions/{victim['session_id']}/finish"),  # one that is not there has ended
        ("GET", f"/training_runs/{victim['model_id']}/checkpoints"),
        ("GET", f"/sessions/{victim['session_id']}/usage"),
    }, taken


@pytest.mark.parametrize("count", [400, pytest.param(10_000, marks=pytest.mark.long)])
def test_one_tenant_cannot_touch_another(tmp_path: Path, place: Place, count: int) -> None:
    expected = _norms(tmp_path / "undisturbed")
    norms, state_dir = [], tmp_path / "state"
    state_dir.mkdir()
    victim: dict[str, Any] = {}
    for half in range(2):
        engine = FakeEngine()
        with (
            hosted(state_dir, partial(_itself, engine), SETTINGS, store=Store(place)) as host,
            closing(Tenant(host, engine)) as tenant,
            closing(Tenant(host, engine, OTHER_KEY)) as attacker,
        ):
            victim = victim or tenant.begin()
            mine = attacker.begin()
            owned = [SECRET, *(str(value) for name, value in victim.items() if name != "path")]
            draws = [random.Random(f"{half} {number}") for number in range(count // 2)]
            statuses = asyncio.run(_send(host, [_request(draw, mine, victim) for draw in draws], owned))
            assert statuses[200] > count / 20, "most were refused at once, and tested nothing behind that"
            assert statuses[404] + statuses[400] > count / 20
            _check_refused(attacker, victim)
            assert "metrics" in tenant.answer(victim["request_id"])
            norms.append(tenant.step(victim["model_id"], 6 + 2 * half))
            listed = [one["checkpoint_id"] for one in tenant.http.get("/checkpoints").json()["checkpoints"]]
            assert listed == ["weights/first"]
    assert norms == expected
