"""Bodies and paths that no SDK sends: refused with a 4xx that says why, never a 5xx."""

import itertools
import json
import random
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from tests.server.fake_engine import FakeEngine
from tests.server.hosting import KEY, Host, hosted

JUNK: list[Any] = [None, True, -1, 0, 2**70, 1.5, "", "x" * 5000, "\x00", "../../etc", [], [[]], {}, {"a": 1}]
FIELDS: dict[str, dict[str, Any]] = {
    "/sessions/search": {
        "session_id": "s",
        "project_ids": ["p"],
        "user_metadata": {"a": "b"},
        "display_name": "n",
        "owner": {"type": "own"},
        "statuses": [{"type": "active"}],
        "limit": 5,
        "cursor": {"last_created_at": "2026-01-01T00:00:00+00:00", "last_session_id": "s"},
    },
    "/copy_weights": {
        "source_path": "tinker://a:train:0/weights/b",
        "destination_project_id": "p",
        "session_id": "s",
        "model_seq_id": 1,
        "ttl_seconds": 7200,
    },
    "/asample": {
        "sampling_session_id": "s",
        "seq_id": 1,
        "num_samples": 1,
        "prompt": {"chunks": [{"type": "encoded_text", "tokens": [1, 2]}]},
        "sampling_params": {"max_tokens": 1, "stop": []},
        "topk_sample_logprobs": 1,
        "target_prompt_logprobs": {"data": [1], "dtype": "int64", "shape": [1, 1]},
    },
}


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    with hosted(tmp_path_factory.mktemp("state"), FakeEngine) as host:
        yield host


@pytest.fixture(scope="module")
def http(host: Host) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=f"{host.url}/api/v1", headers={"X-API-Key": KEY}, timeout=30, trust_env=False) as client:
        yield client


@pytest.fixture(scope="module")
def session_id(http: httpx.Client) -> str:
    body: dict[str, Any] = {"tags": [], "user_metadata": None, "sdk_version": "0.38.0"}
    return str(http.post("/create_session", json=body).json()["session_id"])


@pytest.fixture(scope="module")
def sampler_id(http: httpx.Client, session_id: str) -> str:
    body = {"session_id": session_id, "sampling_session_seq_id": 0, "base_model": "cookhouse/tiny"}
    return str(http.post("/create_sampling_session", json=body).json()["sampling_session_id"])


def check(answer: httpx.Response) -> None:
    assert answer.status_code < 500, (answer.request.url, answer.request.content[:200], answer.text)
    if answer.status_code >= 400:
        assert answer.json()["detail"]


@pytest.mark.parametrize("route", FIELDS)
def test_any_field_may_be_junk(http: httpx.Client, route: str, session_id: str, sampler_id: str) -> None:
    """Would catch a field that is used before it is checked: one after the other, and several at once."""
    real = {"session_id": session_id, "sampling_session_id": sampler_id}
    fields = {name: real.get(name, value) for name, value in FIELDS[route].items()}
    for name, junk in itertools.product(fields, JUNK):
        check(http.post(route, json={**fields, name: junk}))
        check(http.post(route, json={key: value for key, value in fields.items() if key != name}))
    draw = random.Random(7)
    for _ in range(100):
        check(http.post(route, json={name: draw.choice([value, *JUNK]) for name, value in fields.items()}))


def test_samples_may_ask_for_junk(http: httpx.Client, sampler_id: str) -> None:
    """Would catch a request that is accepted and then fails the server, or what else it samples."""
    accepted = []
    datas: list[Any] = [[1], [2**70], [1.5], [-5], [], [10**6]]
    shapes: list[Any] = [[1, 1], [1], None, [2**70, 1], [-1, -1], [1, 0]]
    sparse_parts: list[dict[str, list[int]]] = [
        {},
        {"sparse_crow_indices": [0, 1], "sparse_col_indices": [2**70]},
        {"sparse_crow_indices": []},
    ]
    targets = [{"data": data, "dtype": "int64", "shape": shape} for data in datas for shape in shapes]
    for index, target in enumerate(targets):
        for sparse in sparse_parts:
            body: dict[str, Any] = {
                **FIELDS["/asample"],
                "sampling_session_id": sampler_id,
                "seq_id": 1000 + 10 * index + len(sparse),
            }
            answer = http.post("/asample", json={**body, "target_prompt_logprobs": {**target, **sparse}})
            check(answer)
            if answer.status_code == 200:
                accepted.append(answer.json()["request_id"])
    assert accepted
    for request_id in accepted:
        result = http.post("/retrieve_future", json={"request_id": request_id})
        assert result.status_code == 200
        if result.headers["content-type"] == "application/json":
            assert result.json()["category"] == "user", result.text


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b"null", b"\xff\xfe", b'"text"', b"1" * 5000, b"[" * 5000, b'{"a":NaN}']
)
def test_bodies_that_are_no_objects(http: httpx.Client, session_id: str, body: bytes) -> None:
    for method, route in (
        ("POST", "/sessions/search"),
        ("POST", "/copy_weights"),
        ("PUT", f"/sessions/{session_id}/project"),
        ("POST", "/sessions/unknown/finish"),
        ("POST", "/asample"),
    ):
        answer = http.request(method, route, content=body, headers={"Content-Type": "application/json"})
        assert 400 <= answer.status_code < 500, answer.text
        assert answer.json()["detail"]


@pytest.mark.parametrize("junk", ["", "?x=1", "?" + "a" * 5000, "/", "/../usage", "/%00", "?owner=x&owner=y", "#/"])
def test_status_and_page_take_nothing_of_a_request(host: Host, http: httpx.Client, junk: str) -> None:
    """Would catch a parameter, a body or a header of a stranger's that changes what is told."""
    for method, body in (("GET", None), ("GET", b"\xff" * 5000), ("POST", b"{}"), ("HEAD", None), ("PUT", b"[")):
        answer = http.request(method, f"/status{junk}", content=body)
        assert answer.status_code < 500, (method, junk, answer.text)
        page = http.request(method, f"{host.url}/page/{junk}", content=body)
        assert page.status_code < 500, (method, junk, page.text)
        assert KEY not in page.text
    for header in (b"tml-" + b"x" * 5000, "é".encode(), b"\xff", f"{KEY}, {KEY}".encode()):
        answer = http.get("/status", headers=[(b"x-api-key", header)])
        assert (answer.status_code, list(answer.json())) == (401, ["detail"]), header


@pytest.mark.parametrize("name", ["..", "%2e%2e%2f%2e%2e", "%00", "x" * 3000, "a%2fb", "%ff", "é", ";drop", "'"])
def test_names_in_paths_are_only_looked_up(http: httpx.Client, name: str) -> None:
    """Would catch a name that reaches the file system or the database as more than a value."""
    for method, route in (
        ("POST", f"/training_runs/{name}/checkpoints/weights/{name}/publish"),
        ("DELETE", f"/training_runs/{name}/checkpoints/weights/{name}/publish"),
        ("GET", f"/sessions/{name}/trace_export"),
        ("PUT", f"/sessions/{name}/project"),
        ("GET", f"/session_traces/{name}/9999999999/{name}"),
        ("GET", f"/session_traces/{name}/{'9' * 400}/x"),
        ("GET", f"/external_weights/{name}/9999999999/{name}/{name}"),
    ):
        answer = http.request(method, route, content=json.dumps({"project_id": "p"}))
        assert 400 <= answer.status_code < 500, (route, answer.text)


def test_a_project_has_a_bounded_name(http: httpx.Client, session_id: str) -> None:
    for junk in (*JUNK, "y" * 201):
        answer = http.put(f"/sessions/{session_id}/project", json={"project_id": junk})
        assert answer.status_code == (200 if junk in ("../../etc", "\x00") else 400), (junk, answer.text)


def test_copies_need_one_destination(http: httpx.Client, session_id: str) -> None:
    """Would catch a copy of nothing, or into a session of somebody else."""
    source = "tinker://a:train:0/weights/b"
    for destination in (
        {},
        {"destination_project_id": ""},
        {"session_id": session_id},
        {"model_seq_id": 0},
        {"session_id": session_id, "model_seq_id": -1},
        {"session_id": "theirs", "model_seq_id": 0},
        {"session_id": session_id, "model_seq_id": 0, "destination_project_id": "p"},
    ):
        assert http.post("/copy_weights", json={"source_path": source, **destination}).status_code == 400
