"""Catches sessions that a server takes over, and fails since it does not offer their base models."""

import threading

import pytest
from tests.server.fake_engine import FakeEngine
from tests.server.leases.conftest import Shared, leases_of
from tests.server.leases.test_members import Group, group
from tests.server.leases.test_routing import in_thread
from tests.waiting import wait_until

from cookhouse.engine.contract import LoraSpec
from cookhouse.server.leases.members import Profile
from cookhouse.server.storage.store.rows import RunRow, SamplerRow

__all__ = ["group"]


def offering(*names: str) -> Profile:
    return Profile(journal="files", base_models=names)


def run_of(session_id: str, base_model: str) -> RunRow:
    return RunRow(
        model_id=f"{session_id}:train:0",
        session_id=session_id,
        owner="me",
        base_model=base_model,
        lora={"rank": 4},
        created_at=1.0,
        last_request_at=1.0,
        user_metadata={},
        model_seq_id=0,
    )


def sampler_of(session_id: str, base_model: str) -> SamplerRow:
    return SamplerRow(
        sampler_id=f"{session_id}:sample:0",
        session_id=session_id,
        owner="me",
        base_model=base_model,
        model_path=None,
        created_at=1.0,
        seq_id=0,
    )


def test_each_goes_to_one_that_offers_its_models(group: Group, caplog: pytest.LogCaptureFixture) -> None:
    """Would catch models that are lost since they went by chance, and a session that nobody takes though one could."""
    dead, one, two = group.new(offering("a", "b", "c")), group.new(offering("a")), group.new(offering("a", "b"))
    begun = dead.begin(8)
    store = dead.store
    for session_id, name in zip(begun, ["a", "a:peft:1024", "b", "b", "b", "c", "b", "c"], strict=True):
        if session_id == "s6":
            store.add_sampler(sampler_of(session_id, name))
        else:
            store.add_run(run_of(session_id, name))
    store.add_sampler(sampler_of("s0", "b"))
    store.flush()
    dead.members.leave()
    caplog.clear()
    assert {"s0", "s2", "s3", "s4", "s6"} <= set(two.claim()) <= {*begun} - {"s5", "s7"}
    assert set(one.claim()) <= {"s1"}
    assert two.members.serving.unserved == {"s5": {"c"}, "s7": {"c"}}
    two.claim()
    (message,) = {record.getMessage() for record in caplog.records}
    assert message.startswith("2 sessions wait for a server that offers c: no single one of those that run does")
    third = group.new(offering("c"))
    assert third.claim() == ["s5", "s7"]
    two.claim()
    assert two.members.serving.unserved == {}


class HeldCreation(FakeEngine):
    """Makes no model until it is let."""

    def __init__(self) -> None:
        super().__init__()
        self.free = threading.Event()

    def create_model(self, model_id: str, base_model: str, lora: LoraSpec) -> None:
        self.free.wait(10)
        super().create_model(model_id, base_model, lora)


def test_a_model_that_waits_to_be_made_needs_its_base_model_too(shared: Shared) -> None:
    """Would catch a session that is taken over, and whose model is said to be unknown."""
    engine = HeldCreation()
    with shared.server(make_engine=lambda: engine, sources={"mine": "cookhouse/tiny"}) as first:
        session_id = first.session()
        wanted = {"session_id": session_id, "model_seq_id": 0, "base_model": "mine"}
        created = first.post("/create_model", **wanted)
        with shared.server(sources={"other": "cookhouse/tiny"}) as second:
            first.host.on_loop(first.host.service.hand_over)
            engine.free.set()
            wait_until(lambda: leases_of(second).unserved)
            said = "1 sessions wait for a server that offers mine: no single one of those that run does."
            wait_until(lambda: said in second.http.get("/status").json()["troubles"])
            waiting = in_thread(second, "/retrieve_future", request_id=created["request_id"])
            with shared.server(sources={"mine": "cookhouse/tiny"}) as third:
                assert waiting.result(20).json()["model_id"] == created["model_id"]
                assert third.grad_norm(created["model_id"], 1) == 0.0
                assert second.engine.calls == []
