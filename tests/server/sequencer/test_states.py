"""States and files of samplers that cannot be written, or not be committed: nothing is lost, and all is tried again."""

import asyncio
import errno
import itertools
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.server.fake_engine import FakeEngine
from tests.server.hosting import hosted
from tests.server.recovery.test_recovery import served
from tests.server.storage.journal.examples import entry, state
from tests.server.test_routes import Server
from tests.server.test_silence import HeldEngine
from tests.server.unwritable import locked_database
from tests.waiting import wait_until

from cookhouse.server.refusals import StorageBusyError
from cookhouse.server.sequencer.queues import Coming, History
from cookhouse.server.settings import Settings
from cookhouse.server.storage.journal import Change, Entry, JournalReader, SegmentFiles

EVERY_STEP = Settings(
    state_seconds=0.0, state_cost=1e9, state_retry_seconds=3600.0, store_patience_seconds=0.2, sweep_seconds=3600.0
)


class FullEngine(HeldEngine):
    """Has no room for states while `is_full`, but for samplers."""

    def __init__(self) -> None:
        super().__init__()
        self.free.set()
        self.is_full = False
        self.num_states = 0

    def copy_state(
        self, model_id: str, *, with_optimizer: bool, with_gradient: bool = False
    ) -> Callable[[Path], None] | None:
        write = super().copy_state(model_id, with_optimizer=with_optimizer, with_gradient=with_gradient)

        def write_if_room(folder: Path) -> None:
            self.num_states += 1
            if self.is_full:
                no_room(folder)
            assert write is not None
            write(folder)

        return write_if_room


@contextmanager
def serving(state_dir: Path, engine: FakeEngine, settings: Settings) -> Iterator[Server]:
    with hosted(state_dir, lambda: engine, settings) as host:
        server = Server(host, engine)
        with server.http:
            yield server


def train_until(server: Server, model_id: str, seq_ids: Iterator[int], is_so: Callable[[], bool]) -> None:
    """A step while a state is being written has none behind it."""
    while not is_so():
        train(server, model_id, [next(seq_ids), next(seq_ids)])
        time.sleep(0.05)


def train(server: Server, model_id: str, seq_ids: Iterable[int]) -> None:
    """Passes at odd ids, steps at even ones."""
    for seq_id in seq_ids:
        if seq_id % 2:
            accepted = server.forward_backward(model_id, seq_id).json()
        else:
            adam = {"learning_rate": 0.1}
            accepted = server.post("/optim_step", model_id=model_id, seq_id=seq_id, adam_params=adam)
        assert "error" not in server.result(accepted["request_id"]).text


def entries(server: Server, session_id: str) -> Sequence[Entry]:
    return JournalReader(server.host.service.storage.store, SegmentFiles("rows")).entries(session_id)


def states(state_dir: Path) -> list[str]:
    return [path.name for path in (state_dir / "states").iterdir()]


def test_a_disk_without_room_for_states_keeps_all_requests(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Would catch a full disk that is met again at every step, and a model that lacks what no state has."""
    caplog.set_level(logging.WARNING, "cookhouse.server.sequencer.states")
    engine = FullEngine()
    engine.is_full = True
    with serving(tmp_path, engine, EVERY_STEP) as server:
        session_id = server.session()
        model_id = server.model(session_id)
        train(server, model_id, range(1, 9))
        wait_until(lambda: not states(tmp_path))
        assert engine.num_states == 1
        assert len(entries(server, session_id)) == 9
        assert engine._models[model_id].num_steps == 4
    told = [record.getMessage() for record in caplog.records if record.name.endswith("states")]
    assert len(told) == 1
    assert "states of models cannot be saved" in told[0]
    assert "No space left on device" in told[0]
    again = FullEngine()
    with serving(tmp_path, again, EVERY_STEP) as server:
        train(server, model_id, [9, 10])
        assert again._models[model_id].num_steps == 5
        seq_ids = itertools.count(11)
        train_until(server, model_id, seq_ids, lambda: not entries(server, session_id))
        num_steps = again._models[model_id].num_steps
    last = FullEngine()
    with serving(tmp_path, last, EVERY_STEP) as server:
        assert server.grad_norm(model_id, next(seq_ids)) == 0.0
        assert [name for name, _ in last.calls if name == "forward_backward"] == []
        assert last._models[model_id].num_steps == num_steps + 1


def test_a_samplers_file_that_made_room_is_deleted_once_the_store_can_be_written(tmp_path: Path) -> None:
    """Would catch a file that stays for ever, since the store was locked when it was dropped."""
    with serving(tmp_path, FullEngine(), EVERY_STEP) as server:
        model_id = server.model(server.session())
        files, seq_ids = tmp_path / "samplers", itertools.count(1)

        def has_files(least: int) -> bool:
            return len(list(files.iterdir())) >= least

        for number in range(2):
            publish = {"model_id": model_id, "seq_id": next(seq_ids), "sampling_session_seq_id": number}
            server.result(server.post("/save_weights_for_sampler", **publish)["request_id"])
            train_until(server, model_id, seq_ids, partial(has_files, number + 1))
        sampler_files = server.host.service.sequencer.sampler_files
        assert sampler_files is not None
        wait_until(lambda: len(sampler_files._files) == 2)
        sampler_files._max_bytes = 0
        with locked_database(tmp_path):
            dropping = asyncio.run_coroutine_threadsafe(sampler_files.drop(), server.host.loop)
            time.sleep(2 * EVERY_STEP.store_patience_seconds)
        dropping.result(10)
        assert len(list(files.iterdir())) == 1


@pytest.mark.parametrize("is_lost", [False, True])
def test_a_samplers_file_outlives_a_state_that_was_not_written(tmp_path: Path, is_lost: bool) -> None:
    """Would catch a file that is to be written twice: no state of the model, or no sampler, is there any more."""
    every_step: dict[str, Any] = {"state_seconds": 0.0, "state_cost": 1e9, "state_retry_seconds": 0.0}
    with served(tmp_path, **every_step) as server:
        engine = server.workers[-1].engine
        session_id = server.session()
        model_id = server.model(session_id)
        publish = {"model_id": model_id, "seq_id": 1, "sampling_session_seq_id": 0}
        accepted = server.post("/save_weights_for_sampler", **publish)
        sampler_id = server.result(accepted["request_id"]).json()["sampling_session_id"]
        with pytest.MonkeyPatch.context() as full:
            full.setattr(engine, "copy_state", lambda *_, **__: no_room)
            train(server, model_id, [2])
            wait_until(lambda: list((tmp_path / "samplers").glob("[!.]*")))
            (model,) = (model for one in server.host.service.sessions for model in one.models.values())
            wait_until(lambda: not server.host.service.sequencer.history(model).is_saving)
        if is_lost:
            server.lose()
        train_until(server, model_id, itertools.count(3), lambda: not entries(server, session_id))
        drawn = sample(server, sampler_id)
    with served(tmp_path) as server:
        assert sample(server, sampler_id) == drawn
        assert "snapshot" not in [name for name, _ in server.workers[-1].engine.calls]


def no_room(_folder: Path) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def sample(server: Server, sampler_id: str) -> bytes:
    prompt = {"chunks": [{"type": "encoded_text", "tokens": [1, 2]}]}
    params = {"max_tokens": 20, "seed": 5, "stop": []}
    request = {"sampling_session_id": sampler_id, "prompt": prompt, "sampling_params": params}
    result = server.result(server.post("/asample", **request)["request_id"])
    assert result.status_code == 200
    assert b"error" not in result.content
    return result.content


def test_a_state_waits_for_a_store_that_is_locked(tmp_path: Path) -> None:
    """Would catch a state whose files go though its row may have been written, and one that is written for nothing."""
    engine = FullEngine()
    with serving(tmp_path, engine, EVERY_STEP) as server:
        session_id = server.session()
        model_id = server.model(session_id)
        engine.free.clear()
        accepted = [server.forward_backward(model_id, 1).json()["request_id"]]
        step = {"model_id": model_id, "seq_id": 2, "adam_params": {"learning_rate": 0.1}}
        accepted.append(server.post("/optim_step", **step)["request_id"])
        with locked_database(tmp_path):
            engine.free.set()
            for request_id in accepted:
                assert "error" not in server.result(request_id).text
            wait_until(lambda: states(tmp_path))
            time.sleep(2.0)  # more than the store's patience, and an attempt
            assert len(states(tmp_path)) == 1
            assert len(entries(server, session_id)) == 3
        wait_until(lambda: not entries(server, session_id))
        (kept,) = JournalReader(server.host.service.storage.store, SegmentFiles("rows")).states(session_id)
        assert states(tmp_path) == [kept.state_id]


def test_a_state_that_may_be_committed_keeps_its_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Would catch a server that ends while the database is away, and deletes the state which a row names: the model is
    lost.
    """
    with serving(tmp_path, FullEngine(), EVERY_STEP) as server:
        journal = server.host.service.storage.journal
        assert journal is not None
        commit = journal.commit
        keep = commit.keep

        async def keep_and_be_cut(*changes: Change) -> None:
            await keep(*changes)
            raise StorageBusyError("the answer was lost")

        monkeypatch.setattr(commit, "keep", keep_and_be_cut)
        session_id = server.session()
        model_id = server.model(session_id)
        reader = JournalReader(server.host.service.storage.store, SegmentFiles("rows"))
        train(server, model_id, [1, 2])
        wait_until(lambda: reader.states(session_id))
        wait_until(lambda: "states of models cannot be saved" in caplog.text)
        time.sleep(0.1)
        (kept,) = reader.states(session_id)
        assert states(tmp_path) == [kept.state_id]


def test_an_answer_that_was_fetched_goes_from_the_journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Would catch a database that grows with every request of the last minutes."""

    def answers(server: Server) -> list[str]:
        reader = JournalReader(server.host.service.storage.store, SegmentFiles("rows"))
        return [answer.request_id for answer in reader.answers(session_id)]

    with serving(tmp_path, FullEngine(), EVERY_STEP) as server:
        session_id = server.session()
        model_id = server.model(session_id)
        fetched = server.forward_backward(model_id, 1).json()["request_id"]
        first = server.result(fetched)
        train_until(server, model_id, itertools.count(2), lambda: not entries(server, session_id))
        waiting = server.forward_backward(model_id, 99).json()["request_id"]
        train_until(server, model_id, itertools.count(101), lambda: waiting in answers(server))
        server.host.on_loop(server.host.service.sweeper.sweep)
        assert fetched in answers(server)  # it may be asked for again
        monkeypatch.setattr("cookhouse.server.sequencer.futures._FETCH_AGAIN_SECONDS", 0.0)
        server.host.on_loop(server.host.service.sweeper.sweep)
        wait_until(lambda: answers(server) == [waiting])
        assert server.result(fetched).content == first.content
        assert "error" not in server.result(waiting).text


def test_an_order_waits_for_a_store_that_is_locked(tmp_path: Path) -> None:
    """Would catch an accepted request that fails, or runs though a replay would put it elsewhere."""
    engine = FullEngine()
    with serving(tmp_path, engine, replace(EVERY_STEP, gap_seconds=2.0)) as server:
        session_id = server.session()
        model_id = server.model(session_id)
        late = server.forward_backward(model_id, 2).json()["request_id"]  # it waits so long for what is never sent
        with locked_database(tmp_path):
            time.sleep(3.5)
            assert ("begin", [model_id]) not in engine.calls
        assert "error" not in server.result(late).text
        assert [one.run_index for one in entries(server, session_id)] == [0, 1]


def test_a_new_worker_starts_from_what_is_being_committed() -> None:
    """Would catch a replay that reads requests which the commit under way deletes."""
    history = History(state=state("old"))
    for position in range(3):
        history.add(entry(position), changes_model=True, taken_to=position)
    history.coming = Coming(state("new"), {"train-0", "train-1"})
    newest, since = history.newest()
    assert newest == state("new")
    assert [ran.entry.request_id for ran in since] == ["train-2"]
