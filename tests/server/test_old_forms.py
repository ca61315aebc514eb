"""Catches an old form of the wire that is served by other rules than the new one: order, duplicates, gaps, kills."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.server.fake_engine import FakeEngine
from tests.server.hosting import hosted
from tests.server.old_forms import FORMS, FORWARD, JSON_ONLY
from tests.server.test_routes import Server

from cookhouse.server.settings import Settings

SETTINGS = Settings(max_body_bytes=100_000, gap_seconds=0.2, long_poll_seconds=5.0)
SESSION: dict[str, Any] = {"tags": [], "user_metadata": None}
TOO_OLD = "Your Tinker SDK version is no longer supported. Please upgrade to the latest version."
NO_SESSION = "session_id is required. The version of the Tinker SDK you are using is no longer supported."


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    engine = FakeEngine()
    with hosted(tmp_path, lambda: engine, SETTINGS) as host:
        server = Server(host, engine)
        yield server
        server.close()


def num_passes(server: Server) -> int:
    return [name for name, _ in server.engine.calls].count("forward_backward")


@pytest.mark.parametrize("name", FORMS)
def test_a_pass_is_that_of_protobuf(server: Server, name: str) -> None:
    """Would catch a form that trains on something else, or answers in a form that its SDK does not read."""
    form, model_id = FORMS[name], server.model(server.session())
    result = form.result(server.http, form.send(server.http, model_id, 1).json()["request_id"])
    norm = server.grad_norm(model_id, 2)
    is_json = form.headers == JSON_ONLY
    assert result.headers["content-type"] == ("application/json" if is_json else "application/x-protobuf")
    if is_json:
        [output] = result.json()["loss_fn_outputs"]
        assert output["logprobs"]["shape"] == [2]
    plain = FORMS["0.18"]
    plain.result(server.http, plain.send(server.http, model_id, 3).json()["request_id"])
    assert server.grad_norm(model_id, 4) == norm > 0


@pytest.mark.parametrize("name", FORMS)
def test_duplicates_run_once(server: Server, name: str) -> None:
    """Would catch a retry that doubles a gradient, also where nothing but its key says that it is one."""
    form, model_id = FORMS[name], server.model(server.session())
    ids = [form.send(server.http, model_id, 1).json()["request_id"] for _ in range(3)]
    assert len(set(ids)) == 1
    assert form.result(server.http, ids[0]).status_code == 200
    assert form.send(server.http, model_id, 2).json()["request_id"] != ids[0]
    assert form.send(server.http, model_id, 1).json()["request_id"] == ids[0]
    server.grad_norm(model_id, 3)
    assert num_passes(server) == 2


@pytest.mark.parametrize("name", FORMS)
def test_the_order_is_that_of_the_numbers_or_of_arrival(server: Server, name: str) -> None:
    """Would catch a step that overtakes the passes which its client made before it."""
    form, model_id = FORMS[name], server.model(server.session())
    if not form.has_seq_id:
        sent = [form.send(server.http, model_id, seq_id, token).json() for seq_id, token in ((1, 5), (2, 6))]
        step = server.post("/optim_step", model_id=model_id, adam_params={"learning_rate": 0.0})
    else:
        step = server.post("/optim_step", model_id=model_id, seq_id=3, adam_params={"learning_rate": 0.0})
        sent = [form.send(server.http, model_id, seq_id, token).json() for seq_id, token in ((2, 6), (1, 5))]
    assert server.result(step["request_id"]).json()["metrics"]["grad_norm"] > 0
    assert all(form.result(server.http, one["request_id"]).status_code == 200 for one in sent)
    calls = [name for name, _ in server.engine.calls if name in {"forward_backward", "optim_step"}]
    assert calls[-1] == "optim_step"
    assert num_passes(server) >= 1


@pytest.mark.parametrize("name", [name for name, form in FORMS.items() if form.has_seq_id])
def test_a_gap_does_not_wedge_the_run(server: Server, name: str) -> None:
    """Would catch a server that waits for a number which the SDK reserved and never sent."""
    form, model_id = FORMS[name], server.model(server.session())
    for seq_id in (3, 7):
        request_id = form.send(server.http, model_id, seq_id).json()["request_id"]
        assert form.result(server.http, request_id).status_code == 200
    assert server.grad_norm(model_id, 9) > 0


def test_a_forward_pass_leaves_no_gradient(server: Server) -> None:
    """Would catch a `/forward` that trains, and one whose result old SDKs cannot read."""
    model_id = server.model(server.session())
    first, again = (FORWARD.send(server.http, model_id, 1).json() for _ in range(2))
    assert first == again
    [output] = FORWARD.result(server.http, first["request_id"]).json()["loss_fn_outputs"]
    assert output["logprobs"]["shape"] == [2]
    assert server.grad_norm(model_id, 2) == 0


def test_bad_data_fails_in_its_turn_and_not_at_once(server: Server) -> None:
    """Would catch a 4xx on one chunk of several, after which an SDK waits for ever, and a number that JSON lacks."""
    model_id = server.model(server.session())
    body = FORMS["0.18"].body(model_id, 1)
    body["forward_backward_input"]["data"][0]["loss_fn_inputs"]["weights"]["data"] = [1.0, None]
    accepted = server.post("/forward_backward", **body)
    failed = server.result(accepted["request_id"]).json()
    assert failed == {"error": "datum 0: weights holds None at position 1; it must hold finite numbers of 32 bits",
                      "category": "user"}  # fmt: skip
    server.post("/forward_backward", **FORMS["0.18"].body(model_id, 2))
    assert server.grad_norm(model_id, 3) > 0


def test_samples_in_json(server: Server) -> None:
    """Would catch a prompt without types, and a result that SDKs before 0.18 cannot read."""
    session_id = server.session()
    request = {"session_id": session_id, "sampling_session_seq_id": 0, "base_model": "cookhouse/tiny"}
    sampler_id = server.post("/create_sampling_session", **request)["sampling_session_id"]
    prompt = {"chunks": [{"tokens": [1, 2]}]}
    sample = {"sampling_session_id": sampler_id, "prompt": prompt, "sampling_params": {"max_tokens": 2}}
    accepted = server.post("/asample", **sample, seq_id=1, prompt_logprobs=True)
    answer = FORWARD.result(server.http, accepted["request_id"])
    assert answer.headers["content-type"] == "application/json"
    content = answer.json()
    assert [len(one["tokens"]) == len(one["logprobs"]) for one in content["sequences"]] == [True]
    assert content["prompt_logprobs"][0] is None


@pytest.mark.parametrize(
    ("route", "body"),
    [
        ("/create_session", {**SESSION, "sdk_version": "0.10.0"}),
        ("/create_session", {**SESSION, "sdk_version": "0.15.99"}),
        ("/create_model", {"base_model": "cookhouse/tiny", "lora_config": {"rank": 8}}),
        ("/asample", {"base_model": "cookhouse/tiny", "prompt": {"chunks": [{"tokens": [1]}]}, "sampling_params": {}}),
    ],
)
def test_an_sdk_that_is_too_old_is_told_so(server: Server, route: str, body: dict[str, Any]) -> None:
    """Would catch an SDK that is taken in, and fails later at what nobody has written down."""
    answer = server.http.post(route, json=body)
    assert (answer.status_code, answer.json()) == (
        400,
        {"detail": NO_SESSION if route != "/create_session" else TOO_OLD},
    )


@pytest.mark.parametrize("version", ["0.16.0", "0.38.0", "1.0", "0.40.0.dev1", "unknown", "", "x" * 10_000, "9" * 5000])
def test_any_other_is_taken(server: Server, version: str) -> None:
    """Would catch a newer SDK, or one of a fork's own numbering, that is refused."""
    assert server.http.post("/create_session", json={**SESSION, "sdk_version": version}).status_code == 200


def test_a_list_has_nothing_that_an_old_sdk_cannot_read(server: Server) -> None:
    """Would catch external weights that have an SDK before 0.28 fail over the whole list."""
    model_id = server.model(server.session())
    for seq_id, route in enumerate(("/save_weights", "/save_weights_external"), start=1):
        saved = server.post(route, model_id=model_id, seq_id=seq_id, path="a")
        assert "error" not in server.result(saved["request_id"]).json()
    for version, num_listed in (("0.27.4", 1), ("0.28.0", 2), ("", 2)):
        headers = {"X-Stainless-Package-Version": version}
        for route in ("/checkpoints", f"/training_runs/{model_id}/checkpoints"):
            assert len(server.http.get(route, headers=headers).json()["checkpoints"]) == num_listed
