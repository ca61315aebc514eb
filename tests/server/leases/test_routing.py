"""Catches requests that only the server which holds their session can answer, sent to another."""

import socket
import threading
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

import httpx
import numpy as np
import pytest
import sqlalchemy as sa
import zstandard
from sqlalchemy.exc import OperationalError
from tests.server.hosting import KEY, OTHER_KEY
from tests.server.leases.conftest import Shared, knows_another
from tests.server.sequencer.test_draining import drain
from tests.server.test_routes import Server
from tests.server.test_silence import HeldEngine
from tests.waiting import wait_until
from tinker.proto import tinker_public_pb2 as pb

from cookhouse.server.leases import heartbeats, takeover
from cookhouse.server.leases.heartbeats import Heartbeats, Keeper
from cookhouse.server.leases.members import Holder, Member, Members
from cookhouse.server.recovery.restoration import Restoration
from cookhouse.server.refusals import LeaseLostError
from cookhouse.server.requests.training import TrainingRequests
from cookhouse.server.storage.checkpoints.checkpoints import Checkpoints
from cookhouse.server.storage.journal.segments import MAX_ROW_BYTES
from cookhouse.server.storage.store.failures import unreachable
from cookhouse.server.storage.store.rows import SessionRow
from cookhouse.server.storage.store.tables import ServerRecord

Two = tuple[Server, Server]
BEGIN: dict[str, Any] = {"tags": [], "user_metadata": None, "sdk_version": "0.38.0"}


def in_thread(server: Server, route: str, **content: Any) -> "Future[httpx.Response]":
    answer: Future[httpx.Response] = Future()
    threading.Thread(target=lambda: answer.set_result(server.http.post(route, json=content))).start()
    return answer


def save(server: Server, model_id: str, seq_id: int, route: str = "save_weights") -> str:
    """The path of a checkpoint."""
    saved = server.post(f"/{route}", model_id=model_id, seq_id=seq_id, path=f"at-{seq_id}")["request_id"]
    return str(server.result(saved).json()["path"])


def test_a_client_of_the_other_server_trains_and_samples(two: Two) -> None:
    """Would catch a route that looks into its own server's memory only."""
    mine, other = two
    session_id = mine.session()
    model_id = other.model(session_id)
    first = other.forward_backward(model_id, 1).json()["request_id"]
    assert session_id in first
    assert mine.result(first).content == other.result(first).content
    assert other.grad_norm(model_id, 2) > 0
    assert other.post("/get_info", model_id=model_id)["model_id"] == model_id
    path = save(other, model_id, 3)
    loading = other.post("/load_weights", model_id=model_id, seq_id=4, path=path, optimizer=True)["request_id"]
    assert other.result(loading).json()["path"] == path
    request = {"session_id": session_id, "sampling_session_seq_id": 0, "model_path": path}
    sampler_id = other.post("/create_sampling_session", **request)["sampling_session_id"]
    sample = {
        "sampling_session_id": sampler_id,
        "seq_id": 1,
        "prompt": {"chunks": [{"type": "encoded_text", "tokens": [1]}]},
        "sampling_params": {"max_tokens": 1},
    }
    request_id = other.post("/asample", **sample)["request_id"]
    assert session_id in request_id
    assert other.result(request_id).content == mine.result(request_id).content
    assert other.http.get(f"/samplers/{sampler_id}").json() == mine.http.get(f"/samplers/{sampler_id}").json()
    other.post("/cancel_future", request_id=request_id)
    polled = {"target": {"sampling_session_id": sampler_id}, "prev_cursor": 0, "retrieved_request_ids": []}
    assert other.post("/retrieve_futures", **polled)["completions"][0]["request_id"] == request_id
    other.post("/session_heartbeat", session_id=session_id)
    assert len(mine.engine.calls) > 0
    assert other.engine.calls == []
    other.post(f"/sessions/{session_id}/finish", reason={"type": "success"})
    for server in two:
        assert server.http.post("/session_heartbeat", json={"session_id": session_id}).status_code == 410


def large_pass(server: Server, model_id: str) -> str:
    """A request whose body the journal keeps in a segment; its id."""
    message = pb.ForwardBackwardRequest(model_id=model_id, seq_id=1, loss_fn="cross_entropy")
    for _ in range(600):
        datum = message.data.add()
        datum.model_input.add().encoded_text.tokens = np.arange(1, 61, dtype="<i4").tobytes()
        targets = pb.Tensor(dtype=pb.DTYPE_INT64, dense=np.arange(2, 62, dtype="<i8").tobytes())
        datum.loss_fn_inputs["target_tokens"].CopyFrom(targets)
    body = message.SerializeToString()
    assert len(body) > MAX_ROW_BYTES
    return str(server.http.post("/forward_backward", content=body).json()["request_id"])


def test_a_large_body_goes_on_as_it_came(two: Two) -> None:
    mine, other = two
    model_id = other.model(mine.session())
    assert other.result(large_pass(other, model_id)).status_code == 200


def test_what_goes_on_is_not_decoded(two: Two, monkeypatch: pytest.MonkeyPatch) -> None:
    """Would catch bodies that are decompressed and decoded at each server that they pass."""
    mine, other = two
    model_id = other.model(mine.session())
    decoded: list[TrainingRequests] = []
    read_pass = TrainingRequests.read_pass

    async def told(requests: TrainingRequests, *arguments: Any) -> Any:
        decoded.append(requests)
        return await read_pass(requests, *arguments)

    monkeypatch.setattr(TrainingRequests, "read_pass", told)
    message = pb.ForwardBackwardRequest(model_id=model_id, seq_id=1, loss_fn="cross_entropy")
    message.data.add().model_input.add().encoded_text.tokens = bytes(2**16)
    packed = zstandard.ZstdCompressor().compress(message.SerializeToString())
    headers = {"Content-Encoding": "zstd"}
    for body, encoding in ((packed, headers), (message.SerializeToString(), {})):
        assert other.http.post("/forward_backward", content=body, headers=encoding).status_code == 200
    assert decoded
    assert {id(one) for one in decoded} == {id(mine.host.service.requests.training)}


def test_a_session_of_before_is_found_by_its_requests(shared: Shared, monkeypatch: pytest.MonkeyPatch) -> None:
    """Would catch a request that was accepted before servers shared the database, and is unknown (404) then."""
    monkeypatch.setattr("cookhouse.server.service.new_shared_id", lambda: str(uuid.uuid4()))
    engine = HeldEngine()
    with shared.server(make_engine=lambda: engine) as first, shared.server() as second:
        wait_until(lambda: knows_another(second))
        accepted = first.forward_backward(first.model(first.session()), 1).json()["request_id"]
        assert "shared" not in accepted
        engine.free.set()
        assert second.result(accepted).content == first.result(accepted).content


def test_what_a_silent_server_accepted_is_done_by_the_other(shared: Shared) -> None:
    """Would catch a body in a segment that the other cannot read, and a server that goes on beside it."""
    engine = HeldEngine()
    with shared.server(make_engine=lambda: engine) as first, shared.server() as second:
        wait_until(lambda: knows_another(first) and knows_another(second))
        session_id = first.session()
        model_id = first.model(session_id)
        accepted = large_pass(first, model_id)
        leases = first.host.service.leases
        assert leases is not None
        assert leases._keeper is not None
        leases._keeper.stop()
        wait_until(lambda: second.host.service.sessions.has(session_id))
        assert second.result(accepted).status_code == 200
        assert first.result(accepted).content == second.result(accepted).content
        assert first.grad_norm(model_id, 2) > 0
        assert [name for name, _ in second.engine.calls][-1] == "optim_step"
        assert first.http.get(f"{first.host.url}/readyz").status_code == 503
        engine.free.set()
        with pytest.raises(LeaseLostError):
            first.host.service.storage.store.set_session_project(session_id, "p")
        assert shared.num_lost == 1


def test_a_server_that_was_dropped_says_of_nothing_that_it_has_ended(two: Two, monkeypatch: pytest.MonkeyPatch) -> None:
    """Would catch a machine that was suspended, and whose clock stood still: it does not know what others have made of
    a session since (404, 410), and the client gives up.
    """
    first, second = two
    old, taker = first.host.service.leases, second.host.service.leases
    assert old is not None
    assert taker is not None
    assert old._keeper is not None
    session_id = first.session()
    old._keeper.stop()
    monkeypatch.setattr(Keeper, "is_current", True)
    model = {"model_id": f"{session_id}:train:7"}
    assert first.http.post("/get_info", json=model).status_code == 404
    with taker.members.store.database.writing() as session:
        session.execute(sa.delete(ServerRecord).where(ServerRecord.server_id == old.server_id))
    assert first.http.post("/get_info", json=model).status_code == 503
    assert old.has_left


def test_nothing_is_claimed_before_the_folder_is_swept(shared: Shared, monkeypatch: pytest.MonkeyPatch) -> None:
    """Would catch a sweep that deletes the state which a session that is back already is just writing."""
    with shared.server() as first:
        session_id = first.session()
    monkeypatch.setattr(heartbeats, "BEAT_SECONDS", 0.02)
    beat, claim, tidy = Heartbeats.beat, Heartbeats.claim, Checkpoints.tidy
    did: list[str] = []

    def told_beat(beats: Heartbeats) -> Sequence[Member] | None:
        did.append("beat")
        return beat(beats)

    def told_claim(beats: Heartbeats, living: Sequence[Member]) -> Sequence[str]:
        did.append("claim")
        return claim(beats, living)

    def slow_tidy(checkpoints: Checkpoints, is_alone: Callable[[], bool]) -> None:
        wait_until(lambda: did.count("beat") > 3)
        tidy(checkpoints, is_alone)
        did.append("tidy")

    monkeypatch.setattr(Heartbeats, "beat", told_beat)
    monkeypatch.setattr(Heartbeats, "claim", told_claim)
    monkeypatch.setattr(Checkpoints, "tidy", slow_tidy)
    with shared.server() as second:
        wait_until(lambda: second.host.service.sessions.has(session_id))
    assert "claim" not in did[: did.index("tidy")]


def test_a_session_that_comes_back_in_part_is_tried_again(shared: Shared, monkeypatch: pytest.MonkeyPatch) -> None:
    """Would catch half a session that is answered for: its client hears that its model is gone, and it is ended."""
    engine = HeldEngine()
    with shared.server(make_engine=lambda: engine) as first:
        session_id = first.session()
        model_id = first.model(session_id)
        accepted = first.forward_backward(model_id, 1).json()["request_id"]
        first.host.on_loop(first.host.service.hand_over)
        engine.free.set()
    monkeypatch.setattr(takeover, "_FAILED_SECONDS", 0.1)
    restore_model = Restoration._restore_model
    outcomes: list[bool] = []

    def fail_twice(restoration: Restoration, *arguments: Any) -> None:
        restore_model(restoration, *arguments)
        outcomes.append(len(outcomes) >= 2)
        if not outcomes[-1]:
            raise RuntimeError("half of it is there")

    monkeypatch.setattr(Restoration, "_restore_model", fail_twice)
    with shared.server() as second:
        assert second.http.post("/get_info", json={"model_id": model_id}).json()["model_id"] == model_id
        assert outcomes == [False, False, True]
        assert second.result(accepted).status_code == 200
        assert second.grad_norm(model_id, 2) > 0
        assert len(second.host.service.sequencer.futures) == 3
        assert second.host.service.sequencer.held.by_owner == {}


def test_what_one_has_made_is_downloaded_and_deleted_at_the_other(two: Two) -> None:
    """Would catch links that only the server knows which made them. What is listed: `test_lists.py`."""
    mine, other = two
    session_id = mine.session()
    model_id = mine.model(session_id)
    path = save(mine, model_id, 1)
    weights = save(mine, model_id, 2, "save_weights_external")
    run, kind, name = weights.removeprefix("tinker://").split("/")
    urls = mine.http.get(f"/training_runs/{run}/checkpoints/{kind}/{name}/external_weights_urls").json()["urls"]
    for link in urls.values():
        elsewhere = link.replace(mine.host.url, other.host.url)
        assert httpx.get(elsewhere, trust_env=False).content == httpx.get(link, trust_env=False).content != b""
    trace = other.http.get(f"/sessions/{session_id}/trace_export").json()["url"]
    assert trace.startswith(other.host.url), "what the client can reach"
    assert len(httpx.get(trace, trust_env=False).json()["traceEvents"]) > 0
    saved = path.rpartition("/")[2]
    assert other.http.delete(f"/training_runs/{model_id}/checkpoints/weights/{saved}").status_code == 200
    assert len(mine.http.get("/checkpoints").json()["checkpoints"]) == 1


def test_a_session_is_begun_once(two: Two) -> None:
    """Would catch a retry that reaches the other server, and makes a second session."""
    mine, other = two
    both = [in_thread_with_key(server, "k") for server in (mine, other) for _ in range(4)]
    assert len({answer.result(20).json()["session_id"] for answer in both}) == 1
    again = in_thread_with_key(mine, "another").result(20).json()["session_id"]
    assert again not in {answer.result().json()["session_id"] for answer in both}


def test_a_session_whose_commit_was_not_answered_is_there(two: Two, monkeypatch: pytest.MonkeyPatch) -> None:
    """Would catch a session that a retry is given, and that has ended for good (410): its server does not know it."""
    mine, other = two
    held_by = mine.host.service.leases
    assert held_by is not None
    add = held_by.members.add_session

    def add_and_be_cut(row: SessionRow) -> str:
        monkeypatch.setattr(held_by.members, "add_session", add)
        add(row)
        raise unreachable("it was cut") from OperationalError("COMMIT", None, OSError(), connection_invalidated=True)

    monkeypatch.setattr(held_by.members, "add_session", add_and_be_cut)
    assert in_thread_with_key(mine, "k").result(20).status_code == 503
    [session_id] = {in_thread_with_key(server, "k").result(20).json()["session_id"] for server in two}
    for server in two:
        server.post("/session_heartbeat", session_id=session_id)
    assert other.grad_norm(other.model(session_id), 1) == 0.0


def in_thread_with_key(server: Server, key: str) -> "Future[httpx.Response]":
    answer: Future[httpx.Response] = Future()
    headers = {"X-Idempotency-Key": key}
    threading.Thread(
        target=lambda: answer.set_result(server.http.post("/create_session", json=BEGIN, headers=headers))
    ).start()
    return answer


def test_a_checkpoint_is_copied_once(two: Two) -> None:
    """Would catch a retry that reaches the other server, and makes a second copy."""
    mine, other = two
    path = save(mine, mine.model(mine.session()), 1)
    wanted = {"source_path": path, "destination_project_id": "p"}
    answers = [
        server.http.post("/copy_weights", json=wanted, headers={"X-Idempotency-Key": "k"}) for server in (mine, other)
    ]
    assert answers[0].json() == answers[1].json()
    assert answers[0].status_code == 200


def test_another_tenant_s_session_does_not_exist_elsewhere_either(two: Two) -> None:
    """Would catch a request that is trusted since a server sent it on."""
    mine, other = two
    session_id = mine.session()
    for server in two:
        server.http.headers["X-API-Key"] = OTHER_KEY
        assert server.http.post("/session_heartbeat", json={"session_id": session_id}).status_code == 410
    other.http.headers["X-API-Key"] = "tml-nobody"
    assert other.http.post("/session_heartbeat", json={"session_id": session_id}).status_code == 401


def test_what_a_stopping_server_does_not_take_is_done_by_the_other(shared: Shared) -> None:
    """Would catch a request that waits for the end of a drain, or that both servers send to one another."""
    engine = HeldEngine()
    with shared.server(make_engine=lambda: engine) as first, shared.server() as second:
        wait_until(lambda: knows_another(first) and knows_another(second))
        session_id = first.session()
        model_id = first.model(session_id)
        running = first.forward_backward(model_id, 1).json()["request_id"]
        drained = drain(first)
        assert first.session() in {session.session_id for session in second.host.service.sessions}
        held = [in_thread(one, "/optim_step", model_id=model_id, seq_id=2, adam_params={}) for one in (first, second)]
        first.post("/session_heartbeat", session_id=session_id)
        second.post("/session_heartbeat", session_id=session_id)
        assert not any(one.done() for one in held)
        engine.free.set()
        assert first.result(running).status_code == 200
        assert drained.result(20)
        first.host.on_loop(first.host.service.hand_over)
        [accepted] = {one.result(20).json()["request_id"] for one in held}
        assert second.result(accepted).json()["metrics"]["grad_norm"] > 0
        assert first.result(accepted).status_code == 200, "it is known of there, too"
        assert second.engine.calls[-1][0] == "optim_step"


def test_a_stopping_server_s_workers_are_its_own(two: Two) -> None:
    """Would catch an operator who drains a worker of one server, and takes one from the other."""
    first, second = two
    drain(first)
    for route in ("/workers", "/workers/worker0/drain"):
        refused = first.http.post(route, json={})
        assert (refused.status_code, refused.json()["detail"]) == (
            503,
            "the server is stopping, and its workers with it",
        )
    assert len(second.host.service.pool.workers) == 1
    assert first.session() in {session.session_id for session in second.host.service.sessions}


def sent(server: Server, text: bytes, *, is_all: bool = False) -> bytes:
    """What is answered to a text; `is_all`: its sender leaves."""
    with socket.create_connection(("127.0.0.1", int(server.host.url.rpartition(":")[2])), timeout=10) as client:
        client.sendall(text)
        if is_all:
            client.shutdown(socket.SHUT_WR)
        return client.recv(4096)


def test_what_cannot_be_sent_on_is_no_fault(two: Two, caplog: pytest.LogCaptureFixture) -> None:
    """Would catch a traceback for each address that is none, and for each client that leaves, while a server stops."""
    drain(two[0])
    for target in (b"*", b"http://x/", b"/" + b"a" * 60_000):
        answer = sent(two[0], b"POST " + target + b" HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n")
        assert answer.split()[1] in (b"400", b"404"), target[:20]
    head = b"POST /api/v1/create_session HTTP/1.1\r\nHost: localhost\r\nX-API-Key: " + KEY.encode()
    assert sent(two[0], head + b"\r\nContent-Length: 99\r\n\r\n{", is_all=True) == b""
    forwarding = two[0].host.service._forwarding
    wait_until(lambda: forwarding is not None and not forwarding._num_open)
    assert two[0].http.get("/sessions").status_code == 200
    assert "Traceback" not in caplog.text
    assert "Exception in ASGI" not in caplog.text


def test_a_link_that_nobody_signed_asks_no_database(two: Two, monkeypatch: pytest.MonkeyPatch) -> None:
    """Would catch strangers who have the database asked for sessions, as often as they like."""
    asked: list[str] = []
    holder = Members.holder

    def told_holder(members: Members, session_id: str) -> Holder | None:
        asked.append(session_id)
        return holder(members, session_id)

    monkeypatch.setattr(Members, "holder", told_holder)
    url = f"{two[1].host.url}/api/v1/session_traces/a-session/9999999999/unsigned"
    assert httpx.get(url, trust_env=False).status_code == 404
    assert asked == []
