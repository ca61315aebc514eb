"""Catches what a lost engine, a restart and a hostile client find between the parts of the journal."""

import asyncio
import sqlite3
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from tests.server.fake_engine import FakeEngine
from tests.server.hosting import hosted_over
from tests.server.storage.checkpoints.test_checkpoints import fill
from tests.server.test_routes import Server
from tests.waiting import wait_until
from tinker import types
from tinker.proto import tinker_public_pb2 as pb

from cookhouse.engine.contract import Command, Event, Lost, Step, WorkerOptions
from cookhouse.engine.transports.thread import InThread
from cookhouse.errors import InputError
from cookhouse.server.pool.life import LostState
from cookhouse.server.sequencer.queues import Job
from cookhouse.server.sequencer.states import States
from cookhouse.server.settings import EndSessions, Settings
from cookhouse.server.storage.journal import GroupCommit, PutState
from cookhouse.server.storage.journal.folders import JournalFolders
from cookhouse.server.storage.journal.segments import MAX_ROW_BYTES

SETTINGS = Settings(session_seconds=60.0)


class Losable:
    """A worker that is lost when it is told to."""

    def __init__(self, options: WorkerOptions, base_models: Sequence[str]) -> None:
        self.engine = FakeEngine(base_models)
        self._inner = InThread(lambda: self.engine, options)
        self._lost = asyncio.Event()

    def lose(self) -> None:
        self._lost.set()

    def submit(self, commands: Sequence[Command]) -> None:
        if not self._lost.is_set():
            self._inner.submit(commands)

    async def events(self) -> Sequence[Event]:
        telling, losing = asyncio.ensure_future(self._inner.events()), asyncio.ensure_future(self._lost.wait())
        await asyncio.wait((telling, losing), return_when=asyncio.FIRST_COMPLETED)
        if losing.done():
            telling.cancel()
            return [Lost(worker="engine", reason="the test says so")]
        losing.cancel()
        return await telling

    async def close(self, seconds: float) -> bool:
        return await self._inner.close(seconds)


class Fragile(Server):
    """A server whose engines can be lost."""

    workers: list[Losable]

    def lose(self) -> None:
        """Lose the engine, and wait until there is another one."""
        count = len(self.workers)
        self.host.on_loop(self.workers[-1].lose)
        wait_until(lambda: len(self.workers) > count and self.host.service.pool.is_up, 30)

    def step(self, model_id: str, seq_id: int, learning_rate: float = 0.5) -> float:
        """A pass and a step of it; the norm of its gradient depends on all steps before."""
        self.forward_backward(model_id, seq_id)
        adam = {"learning_rate": learning_rate}
        accepted = self.post("/optim_step", model_id=model_id, seq_id=seq_id + 1, adam_params=adam)
        answer = self.result(accepted["request_id"]).json()
        assert "metrics" in answer, answer
        return float(answer["metrics"]["grad_norm"])


@contextmanager
def served(
    state_dir: Path,
    base_models: Sequence[str] = ("cookhouse/tiny",),
    *,
    sources: Mapping[str, str] | None = None,
    end_sessions: Sequence[EndSessions] = (),
    **options: Any,
) -> Iterator[Fragile]:
    workers: list[Losable] = []

    def make_worker(worker_options: WorkerOptions) -> Losable:
        workers.append(Losable(worker_options, base_models))
        return workers[-1]

    settings = replace(SETTINGS, **options)
    with hosted_over(state_dir, make_worker, settings, sources, end_sessions=end_sessions) as host:
        server = Fragile(host, workers[0].engine)
        server.workers = workers
        try:
            yield server
        finally:
            server.http.close()


def undisturbed(folder: Path, num_steps: int) -> list[float]:
    folder.mkdir(parents=True)
    with served(folder) as server:
        model_id = server.model(server.session())
        return [server.step(model_id, 1 + 2 * step) for step in range(num_steps)]


HUGE = [2**31, 2**63 - 1, 2**63, 2**64, 2**70, -1, -(2**63), -(2**70), 0]


@pytest.mark.parametrize("number", HUGE)
def test_numbers_that_no_column_holds(tmp_path: Path, number: int) -> None:
    """Catches a client's number that fails the server, or a row that no later transaction can write."""
    with served(tmp_path) as server:
        session_id = server.session()
        model_id = server.model(session_id)
        step = {"adam_params": {"learning_rate": 0.0}}
        sampler = {"session_id": session_id, "base_model": "cookhouse/tiny"}
        for route, content in (
            ("/optim_step", {"model_id": model_id, "seq_id": number, **step}),
            ("/save_weights", {"model_id": model_id, "seq_id": number, "path": "a"}),
            ("/save_weights_for_sampler", {"model_id": model_id, "seq_id": 3, "sampling_session_seq_id": number}),
            ("/save_weights_for_sampler", {"model_id": model_id, "seq_id": number, "sampling_session_seq_id": 5}),
            ("/create_sampling_session", {**sampler, "sampling_session_seq_id": number}),
            ("/create_model", {"session_id": session_id, "model_seq_id": number, "base_model": "cookhouse/tiny"}),
        ):
            answer = server.http.post(route, json=content)
            assert answer.status_code < 500, (route, answer.text)
            if answer.status_code == 200 and "request_id" in answer.json():
                server.result(answer.json()["request_id"])
        server.host.service.storage.store.flush()


def test_a_state_that_is_being_committed_when_the_engine_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Catches a replay over requests that are being forgotten, from a state that is being deleted."""
    expected = undisturbed(tmp_path / "undisturbed", 3)
    reached, go_on = asyncio.Event(), asyncio.Event()
    keep = GroupCommit.keep

    async def slow(self: GroupCommit, *changes: Any) -> None:
        await keep(self, *changes)
        if any(isinstance(change, PutState) for change in changes):
            reached.set()
            await go_on.wait()

    (tmp_path / "state").mkdir()
    with served(tmp_path / "state") as server:
        model_id = server.model(server.session())
        norms = [server.step(model_id, 1)]
        monkeypatch.setattr(GroupCommit, "keep", slow)
        monkeypatch.setattr(States, "_is_due", lambda *_: True)
        norms.append(server.step(model_id, 3))
        wait_until(reached.is_set)
        monkeypatch.undo()

        async def lose() -> None:
            server.workers[-1].lose()
            await asyncio.sleep(0.05)
            go_on.set()

        server.host.on_loop(lose)
        wait_until(lambda: len(server.workers) == 2 and server.host.service.pool.is_up, 30)
        assert [*norms, server.step(model_id, 5)] == expected


def test_a_request_that_has_just_been_taken_when_the_engine_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Catches a command that the next engine gets before the model that it is for."""
    with served(tmp_path) as server:
        service, sent = server.host.service, list[str]()
        model_id = server.model(server.session())
        server.step(model_id, 1)
        model = next(iter(next(iter(service.sessions)).models.values()))
        send = service.pool.send

        def note_and_send(command: Command, *rest: Any, **named: Any) -> Any:
            sent.append(type(command).__name__)
            return send(command, *rest, **named)

        async def take_and_lose() -> None:
            monkeypatch.setattr(service.pool, "send", note_and_send)
            content = types.OptimStepRequest.model_validate(
                {"model_id": model_id, "seq_id": 3, "adam_params": {"learning_rate": 0.0}}
            )
            plan = service.requests.training.optim_step(model.owner, content, {})
            future = service.sequencer.futures.create(plan.request_id, owner=model.owner, session_id=model.session_id)
            service.sequencer.admit(model, 0)
            entry = next(iter(service.sequencer.history(model).ran.values())).entry
            entry = replace(entry, request_id=plan.request_id, seq_id=3, kind="optim_step")
            gone = LostState(reason="the test says so", model_ids=[model.model_id], snapshot_ids=())
            service.sequencer.submit(model, 3, Job(run=plan.run, future=future, entry=entry))
            service._note_loss(gone)  # in the same turn of the loop

        server.host.on_loop(take_and_lose)
        wait_until(lambda: sent)
        assert sent[0] == "Create", sent


def test_files_of_a_load_that_are_linked_twice(tmp_path: Path) -> None:
    """Catches a load that fails since its first run was still reading checksums when the engine was lost."""
    fill(tmp_path / "source")
    folders = JournalFolders(tmp_path)
    folders.make()
    for _ in range(2):
        folders.link(tmp_path / "source", folders.load("a"))
    assert [path.name for path in (tmp_path / "loads").iterdir()] == ["a"]


@pytest.mark.parametrize("sources", [None, {"cookhouse/tiny": "cookhouse/tiny"}])
def test_a_restart_without_the_base_model_of_a_live_session(tmp_path: Path, sources: Mapping[str, str] | None) -> None:
    """Catches a server that starts with a wrong -m, and tells its clients that their sessions have ended."""
    models = ("cookhouse/tiny", "other")
    with served(tmp_path, models) as server:
        session_id = server.session()
        created = server.post("/create_model", session_id=session_id, model_seq_id=0, base_model="other")
        server.result(created["request_id"])
        saved = server.post(
            "/save_weights_for_sampler", model_id=created["model_id"], seq_id=1, sampling_session_seq_id=0
        )
        assert "sampling_session_id" in server.result(saved["request_id"]).json()
    said = r"1 sessions .* need other, and this server offers cookhouse/tiny; start it with -m other as well, or .* "
    with pytest.raises(InputError, match=said + "--end-sessions missing"), served(tmp_path, sources=sources):
        pass
    with served(tmp_path, models) as server:
        server.post("/session_heartbeat", session_id=session_id)
    with served(tmp_path, sources=sources, end_sessions=["missing"]) as server:
        assert server.http.post("/session_heartbeat", json={"session_id": session_id}).status_code == 410
    with served(tmp_path, sources=sources) as server:
        assert server.session()


@pytest.mark.parametrize(
    "options",
    [
        {"end_sessions": ["start"]},
        {"end_sessions": ["missing"], "base_models": ("other",), "sources": {"other": "other"}},
    ],
)
def test_sessions_that_a_start_ends_leave_no_files(
    tmp_path: Path, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Catches states and bodies of a run before this one that every start puts aside, until the disk is full."""
    monkeypatch.setattr("cookhouse.server.storage.journal.segments.MAX_ROW_BYTES", 16)
    folders = [tmp_path / name for name in ("states", "journal")]
    with served(tmp_path) as server, monkeypatch.context() as patch:
        patch.setattr(States, "_is_due", lambda *_: True)
        model_id = server.model(server.session())
        assert server.step(model_id, 1)
        wait_until(
            lambda: all(not path.name.startswith(".") for path in folders[0].iterdir()) and any(folders[0].iterdir())
        )
        patch.setattr(States, "_is_due", lambda *_: False)
        assert server.step(model_id, 3)
        assert any(folders[1].iterdir())
    with served(tmp_path, **options):
        assert [path for folder in folders for path in folder.iterdir()] == []
    assert list(tmp_path.glob("*-put-aside")) == []


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param("UPDATE entries SET drawn = '{}' WHERE session_id = ?", id="a KeyError"),
        pytest.param("UPDATE entries SET drawn = 'x' WHERE session_id = ?", id="no JSON"),
        pytest.param("UPDATE sessions SET user_metadata = 'x' WHERE session_id = ?", id="a session that is no JSON"),
    ],
)
def test_a_session_that_cannot_be_decoded_is_set_aside(
    tmp_path: Path, damage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Catches one damaged row that keeps all tenants out, and a client that is told that its session has ended."""
    monkeypatch.setattr("cookhouse.server.leases.takeover._FAILED_SECONDS", 0.05)
    with served(tmp_path) as server:
        mine, broken = server.session(), server.session()
        models = [server.model(session_id) for session_id in (mine, broken)]
        results = [server.forward_backward(model_id, 1).json()["request_id"] for model_id in models]
        for request_id in results:
            server.result(request_id)
    with closing(sqlite3.connect(tmp_path / "server.db")) as database:
        table, column = damage.split()[1], damage.split()[3]
        before = database.execute(f"SELECT rowid, {column} FROM {table} WHERE session_id = ?", [broken]).fetchall()
        assert database.execute(damage, [broken]).rowcount
        database.commit()
    with served(tmp_path) as server:
        assert server.step(models[0], 2)
        for route, content in (
            ("/session_heartbeat", {"session_id": broken}),
            ("/optim_step", {"model_id": models[1], "seq_id": 2, "adam_params": {"learning_rate": 0.1}}),
            ("/retrieve_future", {"request_id": results[1]}),
        ):
            refused = server.http.post(route, json=content)
            assert refused.status_code == 503, route
            assert "cannot be brought back now" in refused.text
        with closing(sqlite3.connect(tmp_path / "server.db")) as database:
            for rowid, value in before:
                database.execute(f"UPDATE {table} SET {column} = ? WHERE rowid = ?", [value, rowid])
            database.commit()
        # The model comes back after its session; until then its requests are to be sent again.
        asked = {"model_id": models[1]}
        wait_until(lambda: server.http.post("/get_info", json=asked).status_code == 200, 30)
        assert server.step(models[1], 2)


def damage(state_dir: Path) -> None:
    """Bodies of requests that are too large for rows."""
    for file in (state_dir / "journal").iterdir():
        file.write_bytes(bytes(file.stat().st_size))


def large_pass(server: Server, model_id: str, seq_id: int, num_datums: int = 400) -> Any:
    message = pb.ForwardBackwardRequest(model_id=model_id, seq_id=seq_id, loss_fn="cross_entropy")
    for _ in range(num_datums):
        datum = message.data.add()
        datum.model_input.add().encoded_text.tokens = np.arange(1, 61, dtype="<i4").tobytes()
        targets = pb.Tensor(dtype=pb.DTYPE_INT64, dense=np.arange(1, 61, dtype="<i8").tobytes())
        datum.loss_fn_inputs["target_tokens"].CopyFrom(targets)
    answer = server.http.post("/forward_backward", content=message.SerializeToString())
    return server.result(answer.json()["request_id"])


def test_a_body_that_is_damaged_is_not_left_out_of_a_model(tmp_path: Path) -> None:
    """Catches weights that lack a pass whose result its client has, and nobody says so."""
    with served(tmp_path) as server:
        session_id = server.session()
        model_id = server.model(session_id)
        assert large_pass(server, model_id, 1).headers["content-type"] == "application/x-protobuf"
    damage(tmp_path)
    with served(tmp_path) as server:
        accepted = server.post("/optim_step", model_id=model_id, seq_id=2, adam_params={"learning_rate": 0.1})
        answer = server.result(accepted["request_id"]).json()
        assert "error" in answer, f"a step of an incomplete gradient: {answer}"


def test_an_answer_that_is_damaged_does_not_keep_the_server_from_starting(tmp_path: Path) -> None:
    with served(tmp_path, state_seconds=0.0) as server:
        model_id = server.model(server.session())
        first = large_pass(server, model_id, 1, num_datums=1200)
        server.step(model_id, 2)
        wait_until(lambda: any((tmp_path / "states").iterdir()))
        assert len(first.content) > MAX_ROW_BYTES
    wait_until(lambda: any((tmp_path / "journal").iterdir()), 5)
    damage(tmp_path)
    with served(tmp_path) as server:
        assert server.session()


def test_a_session_that_ends_while_its_model_is_written_down(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a model that stays in the engine for ever."""
    commit = GroupCommit.commit
    reached, ended = threading.Event(), threading.Event()

    async def slow(self: GroupCommit, *changes: Any, **options: Any) -> None:
        if any(type(change).__name__ == "AddEntry" for change in changes):
            reached.set()
            await asyncio.to_thread(ended.wait, 30)
        await commit(self, *changes, **options)

    with served(tmp_path) as server:
        session_id = server.session()
        monkeypatch.setattr(GroupCommit, "commit", slow)
        content = {"session_id": session_id, "model_seq_id": 0, "base_model": "cookhouse/tiny"}

        async def create_and_end() -> None:
            async with httpx.AsyncClient(base_url=str(server.http.base_url), headers=server.http.headers) as http:
                creating = asyncio.ensure_future(http.post("/create_model", json=content))
                assert await asyncio.to_thread(reached.wait, 30)
                finished = await http.post(f"/sessions/{session_id}/finish", json={"reason": {"type": "success"}})
                assert finished.status_code == 200
                ended.set()
                assert (await creating).status_code == 400

        asyncio.run(create_and_end())
        monkeypatch.undo()
        other = server.session()
        server.model(other)  # the engine has done what it was told before
        engine = server.workers[-1].engine
        assert len(engine._models) == 1, list(engine._models)


def test_a_restart_after_a_state_of_a_replay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches requests that ran taken for late ones, since the state of a replay names ids that come after it."""
    rates = [0.5, 0.1, 0.3, 0.05, 0.2]
    folder = tmp_path / "undisturbed"
    folder.mkdir()
    with served(folder) as server:
        model_id = server.model(server.session())
        expected = [server.step(model_id, 1 + 2 * step, rate) for step, rate in enumerate(rates)]
    due: list[bool] = []

    def is_due(_states: States, _history: object, command: Command) -> bool:
        return isinstance(command, Step) and bool(due) and due.pop()

    monkeypatch.setattr(States, "_is_due", is_due)
    with served(tmp_path) as server:
        model_id = server.model(server.session())
        norms = [server.step(model_id, 1 + 2 * step, rate) for step, rate in enumerate(rates[:3])]
        due.append(True)  # the first step that runs again, two steps before the last that ran
        server.lose()
        norms.append(server.step(model_id, 7, rates[3]))
        assert not due
        wait_until(lambda: _num_states(tmp_path) == 1, 10)
    with served(tmp_path) as server:
        norms.append(server.step(model_id, 9, rates[4]))
    assert norms == expected


def test_a_server_that_only_samples_leaves_models_that_train_alone(tmp_path: Path) -> None:
    """Catches a start with --samplers-only that loses runs whose server was to come back, and one that a client's
    request to train keeps from starting again.
    """
    expected = undisturbed(tmp_path / "undisturbed", 2)
    folder = tmp_path / "state"
    folder.mkdir()
    with served(folder) as server:
        model_id = server.model(server.session())
        norms = [server.step(model_id, 1)]
    with (
        pytest.raises(InputError, match=rf"has 1 models that train \({model_id}\).*; start without --samplers-only"),
        served(folder, samplers_only=True),
    ):
        pass
    with served(folder) as server:
        norms.append(server.step(model_id, 3))
        server.post(f"/sessions/{model_id.partition(':')[0]}/finish", reason={"type": "success"})
    assert norms == expected
    for _ in range(2):
        with served(folder, samplers_only=True) as server:
            creation = {"session_id": server.session(), "model_seq_id": 0, "base_model": "cookhouse/tiny"}
            refused = server.http.post("/create_model", json=creation)
            assert refused.status_code == 400
            assert "this server only samples" in refused.text


def _num_states(state_dir: Path) -> int:
    with closing(sqlite3.connect(state_dir / "server.db")) as database:
        return int(database.execute("SELECT count(*) FROM states").fetchone()[0])
