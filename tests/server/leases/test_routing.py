"""Catches requests that only the server which holds their session can answer, sent to another."""

from tests.server.test_routes import Server

Two = tuple[Server, Server]


def test_a_client_of_the_other_server_trains_and_samples(two: Two) -> None:
    """Would catch a route that looks into its own server's memory only."""
    mine, other = two
    session_id = mine.session()
    model_id = other.model(session_id)
    first = other.forward_backward(model_id, 1).json()["request_id"]
    assert session_id in first
    assert mine.result(first).content == other.result(first).content
    assert other.grad_norm(model_id, 2) > 0
    info = other.post("/get_info", model_id=model_id)
    assert info["model_id"] == model_id
    saved = other.post("/save_weights", model_id=model_id, seq_id=3, path="a")["request_id"]
    path = other.result(saved).json()["path"]
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
