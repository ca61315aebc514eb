"""Models that come back while there is no memory for them, or no disk: they wait, and nothing of them is lost."""

import contextlib
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.server.fake_engine import FakeEngine
from tests.server.hosting import Host, hosted
from tests.server.recovery.test_recovery import SETTINGS
from tests.server.sequencer.test_states import EVERY_STEP
from tests.server.test_routes import Server
from tests.waiting import wait_until

from cookhouse.engine.contract import DamagedError, LoraSpec, NoMemoryError, Room
from cookhouse.server.pool.plans import plans_of

FULL = NoMemoryError("an adapter takes 2.00 GiB and 1.00 GiB of memory are free")
BROKEN = OSError(5, "Input/output error")


class FullEngine(FakeEngine):
    """Makes no model while it has `error`."""

    def __init__(self) -> None:
        super().__init__()
        self.error: Exception | None = None
        self.num_tries = 0

    def create_model(self, model_id: str, base_model: str, lora: LoraSpec) -> None:
        self._check()
        super().create_model(model_id, base_model, lora)

    def load_state(
        self,
        model_id: str,
        base_model: str,
        lora: LoraSpec,
        folder: Path,
        *,
        with_optimizer: bool,
        with_gradient: bool = False,
    ) -> None:
        self._check()
        parts = {"with_optimizer": with_optimizer, "with_gradient": with_gradient}
        super().load_state(model_id, base_model, lora, folder, **parts)

    def _check(self) -> None:
        if self.error is not None:
            self.num_tries += 1
            raise self.error


class Pool(Server):
    """Two workers, and their engines in whatever order they were made."""

    def __init__(self, host: Host, engines: list[FullEngine]) -> None:
        super().__init__(host, engines[0])
        self.engines = engines

    def other_engine(self, model_id: str) -> tuple[str, FullEngine]:
        """The worker that has a model, and the engine of the other."""
        pool = self.host.service.pool
        (place,) = [one.name for one in pool.workers if model_id in pool.placement.models_of(one)]
        (other,) = [engine for engine in self.engines if model_id not in engine._models]
        return place, other

    def step(self, model_id: str, seq_id: int) -> float:
        self.forward_backward(model_id, seq_id)
        return self.grad_norm(model_id, seq_id + 1)


@contextlib.contextmanager
def serving(folder: Path, error: Exception | None = None, *, every_step: bool = False) -> Iterator[Pool]:
    engines: list[FullEngine] = []

    def make() -> FullEngine:
        engine = FullEngine()
        engine.error = error
        engines.append(engine)
        return engine

    with hosted(folder, make, EVERY_STEP if every_step else SETTINGS, plans=plans_of(workers=2)) as host:
        pool = Pool(host, engines)
        with pool.http:
            yield pool


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cookhouse.server.sequencer.retries._AGAIN_SECONDS", 0.02)


def between_tries(pool: Pool, model_id: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The status, and the row of a model, while no worker tries to load it."""
    found: list[dict[str, Any]] = []

    def is_between() -> bool:
        status = pool.http.get("/status").json()
        (row,) = [row for row in status["models"]["listed"] if row["model_id"] == model_id]
        found[:] = [status, row]
        return row["worker"] is None

    wait_until(is_between)
    return found[0], found[1]


@pytest.mark.parametrize(("error", "words"), [(FULL, "2.00 GiB and 1.00 GiB"), (BROKEN, "Input/output error")])
def test_a_model_waits_for_what_it_lacks_and_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, error: Exception, words: str
) -> None:
    """Would catch a drain, and a loss, that destroy a model since the others had no memory at the moment."""
    caplog.set_level(logging.WARNING, "cookhouse.server.sequencer.retries")
    with serving(tmp_path) as pool:
        model_id = pool.model(pool.session())
        expected = pool.step(pool.model(pool.session()), 1)
        assert pool.step(model_id, 1) == expected
        place, other = pool.other_engine(model_id)
        other.error = error
        pool.post(f"/workers/{place}/drain", seconds=0)
        later = pool.forward_backward(model_id, 3).json()["request_id"]
        wait_until(lambda: other.num_tries >= 3)
        status, row = between_tries(pool, model_id)
        assert words in row["waits_for"]
        assert any(one.startswith("1 model waits to be loaded again") and words in one for one in status["troubles"])
        other.error = None
        assert "error" not in pool.result(later).text
        assert pool.grad_norm(model_id, 4) > 0
    said = [record.getMessage() for record in caplog.records if record.name.endswith(".retries")]
    assert [model_id in one for one in said] == [True, True]
    assert words in said[0]
    assert "is loaded, after it waited for" in said[1]


def test_a_damaged_model_is_lost_at_once(tmp_path: Path) -> None:
    """Would catch a client that waits for ever for what no memory brings back."""
    with serving(tmp_path) as pool:
        model_id = pool.model(pool.session())
        pool.step(model_id, 1)
        place, other = pool.other_engine(model_id)
        other.error = DamagedError("checkpoint /secret/path holds nothing")
        pool.post(f"/workers/{place}/drain", seconds=0)
        answer = pool.result(pool.forward_backward(model_id, 3).json()["request_id"]).text
        assert "error" in answer
        assert "/secret/path" not in answer


def test_a_waiting_model_ends_with_its_session(tmp_path: Path) -> None:
    """Would catch a model that is tried for ever, though nobody wants it any more."""
    with serving(tmp_path) as pool:
        session_id = pool.session()
        model_id = pool.model(session_id)
        place, other = pool.other_engine(model_id)
        other.error = FULL
        pool.post(f"/workers/{place}/drain", seconds=0)
        wait_until(lambda: other.num_tries > 0)
        sessions = pool.host.service.lifecycle
        session = next(one for one in pool.host.service.sessions if one.session_id == session_id)
        pool.host.on_loop(lambda: sessions.let_go(session))
        retries = pool.host.service.sequencer.retries
        wait_until(lambda: retries.reason(model_id) is None)


def test_others_do_not_wait_for_it_after_a_restart(tmp_path: Path) -> None:
    """Would catch a server that is not ready for anybody, since there is no memory for one tenant's model."""
    with serving(tmp_path) as pool:
        model_id = pool.model(pool.session())
        expected = pool.step(pool.model(pool.session()), 1)
    with serving(tmp_path, FULL) as pool:
        wait_until(lambda: pool.host.service.pause() is None)
        assert pool.host.service.sequencer.retries.reason(model_id) is not None
        later = pool.forward_backward(model_id, 1).json()["request_id"]
        for engine in pool.engines:
            engine.error = None
        assert "error" not in pool.result(later).text
        assert pool.grad_norm(model_id, 2) == expected


def test_a_drain_that_the_others_have_no_memory_for_is_refused(tmp_path: Path) -> None:
    """Would catch an operator who stops a tenant's training for want of memory, and is not told before."""
    with serving(tmp_path, every_step=True) as pool:
        model_id = pool.model(pool.session())
        pool.step(model_id, 1)
        wait_until(lambda: pool.host.service.sequencer.state_bytes(model_id) > 0)
        place, _ = pool.other_engine(model_id)
        (other,) = [one for one in pool.host.service.pool.workers if one.name != place]
        pool.host.on_loop(lambda: other.memory.note_room(Room(free_bytes=1, base_models=())))
        answer = pool.http.post(f"/workers/{place}/drain", json={"seconds": 0})
        assert answer.status_code == 400
        detail = answer.json()["detail"]
        assert f"{place} has 1 model in training, whose states take 0.00 GiB" in detail
        assert f"({other.name} 0.00 GiB); add a worker first" in detail
        assert not any(one.is_draining for one in pool.host.service.pool.workers)
        pool.host.on_loop(lambda: other.memory.note_room(Room(free_bytes=2**30, base_models=())))
        pool.post(f"/workers/{place}/drain", seconds=0)
        assert pool.step(model_id, 3) > 0
