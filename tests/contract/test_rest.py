"""What the SDK can ask for beside training and sampling: every route of it is served, or refused with the reason."""

import json
import re
import socket
import urllib.request
from collections.abc import Iterator, Mapping
from datetime import date
from pathlib import Path
from typing import Any

import httpx
import pytest
import tinker
from tests.contract.calls import BASE_MODEL, new_trainer, train
from tests.server.fake_engine import FakeEngine
from tests.server.hosting import KEY, OTHER_KEY, Host, hosted
from tinker import types
from tinker.types import (
    AccessibleSearchOwner,
    ActiveSessionStatusQuery,
    ClientFinishedSessionStatusQuery,
    SessionSearchRequest,
    UserSearchOwner,
)

from cookhouse.registry import folder_sha256
from cookhouse.server.http.routes import HOT_ROUTES, ROUTERS
from cookhouse.server.http.routes.not_offered import _NOT_OFFERED
from cookhouse.training import served_sha256

pytestmark = pytest.mark.filterwarnings("ignore:.*experimental.*")


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[Host]:
    """A server that has seen nobody yet."""
    with hosted(tmp_path, FakeEngine) as host:
        yield host


@pytest.fixture
def rest(alone: Host) -> tinker.RestClient:
    return tinker.RestClient(base_url=alone.url, api_key=KEY)


def save(host: Host, name: str = "w", *, display_name: str | None = None, **metadata: str) -> str:
    """The path of weights that a session of its own has saved."""
    with tinker.ServiceClient(
        base_url=host.url, api_key=KEY, user_metadata=metadata or None, display_name=display_name
    ) as client:
        trainer = new_trainer(client)
        train(trainer, 1)
        return trainer.save_weights_for_sampler(name).result().path


def sdk_routes() -> set[str]:
    """Every path that the installed SDK names, with what it fills in written as {}."""
    texts = [file.read_text() for file in Path(tinker.__file__).parent.rglob("*.py") if "_test" not in file.name]
    paths = {path for text in texts for path in re.findall(r'f?"/api/v1(/[^"?]+)"', text)}
    return {re.sub(r"\{[^}]*checkpoint_id[^}]*\}", "{}/{}", path) for path in paths}


def test_every_route_of_the_sdk_is_served_or_refused_by_name() -> None:
    """Would catch a release of the SDK that calls what this server does not know."""
    routes: list[Any] = [*HOT_ROUTES, *(route for router in ROUTERS for route in router.routes)]
    served = {re.sub(r"\{\w+\}", "{}", route.path) for route in routes}
    wanted = {re.sub(r"\{\w+\}", "{}", path) for path in sdk_routes()}
    assert len(wanted) > 35
    assert wanted - served == set()


@pytest.mark.parametrize("route", _NOT_OFFERED)
@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
def test_what_is_not_offered_says_so(alone: Host, route: str, method: str) -> None:
    """Would catch a 5xx, 402 or 409, which the SDK tries again for minutes or an hour."""
    answer = httpx.request(method, f"{alone.url}/api/v1{route}", headers={"X-API-Key": KEY}, trust_env=False)
    assert answer.status_code == 404
    assert "not offered by this server; " in answer.json()["detail"]


def test_billing_and_audit_are_not_offered(alone: Host) -> None:
    admin = tinker.AdminClient(base_url=alone.url, api_key=KEY)
    for asking in (
        admin.get_audit_log(day=date(2026, 1, 2)),
        admin.get_billing_usage("2026-07-13T00:00:00Z", "2026-07-14T00:00:00Z"),
        admin.get_current_checkpoint_storage_usage(),
    ):
        with pytest.raises(tinker.NotFoundError, match="not offered by this server"):
            asking.result()


def test_published_weights_are_everybodys_to_read_until_they_are_not(alone: Host, rest: tinker.RestClient) -> None:
    """Would catch a publish that says yes and does nothing, and one that lets others delete."""
    path = save(alone)
    others = tinker.RestClient(base_url=alone.url, api_key=OTHER_KEY)
    with pytest.raises(tinker.NotFoundError, match="no checkpoint"):
        others.publish_checkpoint_from_tinker_path(path).result()
    for _ in range(2):
        rest.publish_checkpoint_from_tinker_path(path).result()
    assert [one.public for one in rest.list_user_checkpoints().result().checkpoints] == [True]
    assert others.get_weights_info_by_tinker_path(path).result().base_model == BASE_MODEL
    with tinker.ServiceClient(base_url=alone.url, api_key=OTHER_KEY) as client:
        sampler = client.create_sampling_client(path).result()
        prompt = types.ModelInput.from_ints([3, 4])
        assert len(sampler.sample(prompt, 1, types.SamplingParams(max_tokens=1)).result().sequences) == 1
    for asking in (
        others.delete_checkpoint_from_tinker_path(path),
        others.set_checkpoint_ttl_from_tinker_path(path, 3600),
        others.unpublish_checkpoint_from_tinker_path(path),
    ):
        with pytest.raises(tinker.NotFoundError, match="belongs to somebody else"):
            asking.result()
    assert others.list_user_checkpoints().result().checkpoints == []
    for _ in range(2):
        rest.unpublish_checkpoint_from_tinker_path(path).result()
    assert [one.public for one in rest.list_user_checkpoints().result().checkpoints] == [False]
    with pytest.raises(tinker.NotFoundError, match="no checkpoint"):
        others.get_weights_info_by_tinker_path(path).result()


def test_the_checksum_of_weights_is_told_to_who_may_read_them(alone: Host, tmp_path: Path) -> None:
    """Would catch another checksum than that of the files, by which a registered model would have changed."""
    path = save(alone)
    [folder] = (tmp_path / "checkpoints").iterdir()
    assert served_sha256(alone.url, KEY, path) == folder_sha256(folder)
    assert served_sha256(alone.url, OTHER_KEY, path) is None
    assert served_sha256(alone.url, KEY, f"{path}-other") is None


def test_what_tells_no_checksum_has_none() -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        assert served_sha256(f"http://127.0.0.1:{nobody.getsockname()[1]}", KEY, "tinker://a/weights/b") is None


def test_a_copy_outlives_what_it_was_made_of(alone: Host, rest: tinker.RestClient) -> None:
    """Would catch a copy that shares the life of its source, its owner or its end."""
    path = save(alone)
    copy = rest.copy_weights(path, "archive", ttl_seconds=7200).result()
    assert copy != path
    assert copy.endswith("/sampler_weights/w")
    rest.delete_checkpoint_from_tinker_path(path).result()
    [kept] = rest.list_user_checkpoints().result().checkpoints
    assert kept.tinker_path == copy
    assert kept.expires_at is not None
    run = rest.get_training_run_by_tinker_path(copy).result()
    assert (run.base_model, run.user_metadata) == (BASE_MODEL, {"copied_from": path})
    with tinker.ServiceClient(base_url=alone.url, api_key=KEY) as client:
        sampler = client.create_sampling_client(copy).result()
        assert sampler.compute_logprobs(types.ModelInput.from_ints([3, 4])).result()[0] is None


def test_what_was_published_can_be_copied(alone: Host, rest: tinker.RestClient) -> None:
    path = save(alone)
    others = tinker.RestClient(base_url=alone.url, api_key=OTHER_KEY)
    with pytest.raises(tinker.NotFoundError, match="no checkpoint"):
        others.copy_weights(path, "mine").result()
    rest.publish_checkpoint_from_tinker_path(path).result()
    copy = others.copy_weights(path, "mine").result()
    assert [one.tinker_path for one in others.list_user_checkpoints().result().checkpoints] == [copy]


def test_a_copy_that_is_asked_for_twice_is_made_once(alone: Host, rest: tinker.RestClient) -> None:
    """Would catch a retry, after an answer that was lost, that makes a second copy, and a key that finds another's."""
    body = {"source_path": save(alone), "destination_project_id": "p"}
    first, again, theirs = (copy(alone, key, body) for key in (KEY, KEY, OTHER_KEY))
    assert first.json() == again.json()
    assert theirs.status_code == 404
    assert len(rest.list_user_checkpoints().result().checkpoints) == 2


def test_nothing_is_copied_into_a_session_of_another_tenant(alone: Host, rest: tinker.RestClient) -> None:
    """Would catch a run in my list that I did not train."""
    path = save(alone)
    rest.publish_checkpoint_from_tinker_path(path).result()
    session_id = path.removeprefix("tinker://").split(":")[0]
    body = {"source_path": path, "session_id": session_id, "model_seq_id": 7}
    refused = copy(alone, OTHER_KEY, body)
    assert refused.status_code == 400
    assert "unknown session" in refused.json()["detail"]
    assert copy(alone, KEY, body).json()["tinker_path"] == f"tinker://{session_id}:train:7/sampler_weights/w"


def copy(host: Host, key: str, body: Mapping[str, object]) -> httpx.Response:
    headers = {"X-API-Key": key, "X-Idempotency-Key": "k"}
    return httpx.post(f"{host.url}/api/v1/copy_weights", json=body, headers=headers, trust_env=False)


def test_sessions_are_found_by_what_is_known_of_them(alone: Host, rest: tinker.RestClient) -> None:
    """Would catch a filter that filters nothing, and pages that repeat or leave out a session."""
    save(alone, display_name="Nightly run", team="a")
    save(alone, display_name="Morning", team="b")
    with tinker.ServiceClient(base_url=alone.url, api_key=KEY) as client:
        new_trainer(client)
        newest = rest.list_sessions().result().sessions[0]

        def found(**filters: object) -> list[str | None]:
            page = rest.search_sessions(SessionSearchRequest.model_validate(filters)).result()
            assert page.next_cursor is None
            return [session.display_name for session in page.sessions]

        assert found() == [None, "Morning", "Nightly run"]
        assert found(owner=AccessibleSearchOwner()) == found()
        assert found(owner=UserSearchOwner(owner_urns=["urn:nobody"])) == []
        assert found(display_name="RUN night") == ["Nightly run"]
        assert found(display_name="morning", session_id=newest) == [None, "Morning"]
        assert found(user_metadata={"team": "b"}) == ["Morning"]
        assert found(statuses=[ActiveSessionStatusQuery()]) == [None]
        assert found(statuses=[ClientFinishedSessionStatusQuery()]) == ["Morning", "Nightly run"]
        assert found(statuses=[ClientFinishedSessionStatusQuery(reasons=["errored"])]) == []
        rest.assign_session_project(newest, "mine").result()
        assert found(project_ids=["mine"]) == [None]
        assert found(project_ids=["local"]) == ["Morning", "Nightly run"]
        seen, cursor = [], None
        for _ in range(3):
            page = rest.search_sessions(SessionSearchRequest(limit=1, cursor=cursor)).result()
            seen += [(one.display_name, one.checkpoints_count, one.project_id) for one in page.sessions]
            cursor = page.next_cursor
        assert seen == [(None, 0, "mine"), ("Morning", 1, "local"), ("Nightly run", 1, "local")]
        assert cursor is None
    others = tinker.RestClient(base_url=alone.url, api_key=OTHER_KEY)
    assert others.search_sessions(SessionSearchRequest()).result().sessions == []
    with pytest.raises(tinker.NotFoundError, match="unknown session"):
        others.assign_session_project(newest, "theirs").result()
    [summary] = rest.search_sessions(SessionSearchRequest(session_id=newest)).result().sessions
    assert summary.status is not None
    assert summary.status.type == "client_finished"


def test_a_trace_has_the_requests_of_its_session(alone: Host, rest: tinker.RestClient) -> None:
    """Would catch a trace of another session, one that ends with its session, or a link that others can make."""
    path = save(alone)
    save(alone)
    session_id = path.removeprefix("tinker://").split(":")[0]
    url = rest.export_session_trace(session_id).result()
    trace = json.loads(urllib.request.build_opener(urllib.request.ProxyHandler({})).open(url).read())
    begun = [event["name"] for event in trace["traceEvents"] if event["ph"] == "b"]
    assert begun == ["create_model", "forward_backward", "optim_step", "save_weights_for_sampler"]
    ended = {event["id"]: event["ts"] for event in trace["traceEvents"] if event["ph"] == "e"}
    assert all(event["ts"] <= ended[event["id"]] for event in trace["traceEvents"] if event["ph"] == "b")
    assert httpx.get(url[:-1] + ("0" if url[-1] != "0" else "1"), trust_env=False).status_code == 404
    others = tinker.RestClient(base_url=alone.url, api_key=OTHER_KEY)
    with pytest.raises(tinker.NotFoundError, match="unknown session"):
        others.export_session_trace(session_id).result()
    idle = save_nothing(alone)
    with pytest.raises(RuntimeError, match="no request of session"):
        rest.export_session_trace(idle).result()


def save_nothing(host: Host) -> str:
    """The id of a session without any request."""
    answer = httpx.post(
        f"{host.url}/api/v1/create_session",
        json={"tags": [], "user_metadata": None, "sdk_version": "0.38.0"},
        headers={"X-API-Key": KEY},
        trust_env=False,
    )
    return str(answer.json()["session_id"])
