"""Catches a start that goes on from other weights than were written: a disk has changed a bit of what it reads."""

import random
import shutil
import sqlite3
from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from tests.server.recovery.test_recovery import Fragile, large_pass, served
from tests.waiting import wait_until

from cookhouse.errors import CookhouseError
from cookhouse.server.sequencer.states import States

SCRATCH = "workers", "server.lock"


@dataclass(frozen=True)
class Crashed:
    """A state folder as a killed server leaves it, and what its client is told when it asks on."""

    folder: Path
    model_ids: Sequence[str]
    """One that has a state, and one that was loaded from a checkpoint."""
    sampler_id: str
    expected: Sequence[object]

    def files(self) -> Sequence[str]:
        """What a restore reads."""
        there = [path.relative_to(self.folder) for path in sorted(self.folder.rglob("*")) if path.is_file()]
        return [path.as_posix() for path in there if path.parts[0] not in SCRATCH]

    def flipped(self, into: Path, name: str, seed: int) -> Path:
        """A copy of it with one bit changed."""
        shutil.copytree(self.folder, into)
        content = bytearray((into / name).read_bytes())
        drawn = random.Random(f"{name.partition('/')[0]} {seed}")
        content[drawn.randrange(len(content))] ^= 1 << drawn.randrange(8)
        (into / name).write_bytes(content)
        return into


def answered(server: Fragile, request_id: str) -> object:
    """A result; None: its client is told that there is none."""
    answer = server.result(request_id)
    return None if answer.status_code != 200 or b'"error"' in answer.content else answer.content


def asked(server: Fragile, route: str, **content: Any) -> object:
    accepted = server.http.post(route, json=content)
    return answered(server, accepted.json()["request_id"]) if accepted.status_code == 200 else None


def asked_on(server: Fragile, model_ids: Sequence[str], sampler_id: str) -> list[object]:
    """Of each model a step, whose norm is that of all passes before, a pass and a step; and a sample."""
    prompt = {"chunks": [{"type": "encoded_text", "tokens": [1, 2]}]}
    told = []
    for model_id in model_ids:
        step = {"model_id": model_id, "adam_params": {"learning_rate": 0.5}}
        told.append(asked(server, "/optim_step", seq_id=10, **step))
        accepted = server.forward_backward(model_id, 11)
        told.append(answered(server, accepted.json()["request_id"]) if accepted.status_code == 200 else None)
        told.append(asked(server, "/optim_step", seq_id=12, **step))
    sampling = {"sampling_params": {"max_tokens": 8, "seed": 3}, "prompt": prompt}
    return [*told, asked(server, "/asample", sampling_session_id=sampler_id, **sampling)]


@pytest.fixture(scope="module")
def crashed(tmp_path_factory: pytest.TempPathFactory) -> Crashed:
    """A model with a state, and behind it a pass in a segment; and one that was loaded from a checkpoint of it."""
    folder = tmp_path_factory.mktemp("crashed")
    (folder / "state").mkdir()
    with served(folder / "state") as server, pytest.MonkeyPatch.context() as patch:
        session_id = server.session()
        model_id = server.model(session_id)
        server.step(model_id, 1)
        published = server.post("/save_weights_for_sampler", model_id=model_id, seq_id=3, sampling_session_seq_id=0)
        sampler_id = server.result(published["request_id"]).json()["sampling_session_id"]
        patch.setattr(States, "_is_due", lambda *_: True)
        server.step(model_id, 4)
        wait_until(lambda: len(list((folder / "state" / "states").glob("[!.]*"))) == 1)
        journal = server.host.service.storage.journal
        assert journal is not None
        wait_until(lambda: journal.reader.states(session_id))
        patch.setattr(States, "_is_due", lambda *_: False)
        saved = server.post("/save_weights", model_id=model_id, seq_id=6, path="kept")
        path = server.result(saved["request_id"]).json()["path"]
        server.step(model_id, 7)
        accepted = server.post("/load_weights", session_id=session_id, model_seq_id=1, path=path, optimizer=True)
        model_ids = [model_id, server.result(accepted["request_id"]).json()["model_id"]]
        for seq_id in (1, 3, 5, 7):
            server.step(model_ids[1], seq_id)
        for each in model_ids:
            large_pass(server, each, 9)
        shutil.copytree(folder / "state", folder / "crashed")
        expected = asked_on(server, model_ids, sampler_id)
    assert None not in expected
    return Crashed(folder / "crashed", model_ids, sampler_id, expected)


def check(crashed: Crashed, folder: Path) -> None:
    with suppress(CookhouseError), served(folder) as server:  # it may be refused in words
        found = asked_on(server, crashed.model_ids, crashed.sampler_id)
        wrong = [
            at for at, (was, now) in enumerate(zip(crashed.expected, found, strict=True)) if now not in (None, was)
        ]
        assert not wrong, "it went on from other weights, and nobody is told"


def test_a_crash_without_damage_goes_on(crashed: Crashed, tmp_path: Path) -> None:
    """Would catch tests below that compare nothing."""
    folders = {name.partition("/")[0] for name in crashed.files()}
    assert {"states", "samplers", "loads", "journal", "server.db", "server.db-wal"} <= folders
    shutil.copytree(crashed.folder, tmp_path / "copy")
    with served(tmp_path / "copy") as server:
        assert asked_on(server, crashed.model_ids, crashed.sampler_id) == crashed.expected


@pytest.mark.parametrize("kind", ["states", "samplers", "loads", "journal", "checkpoints", "server.db-wal"])
def test_a_flipped_bit_is_told(crashed: Crashed, tmp_path: Path, kind: str) -> None:
    name = next(name for name in crashed.files() if name.partition("/")[0] == kind)
    check(crashed, crashed.flipped(tmp_path / "copy", name, seed=6))  # which changes a number, and leaves it one


def test_a_damaged_state_is_refused_with_the_way_out(crashed: Crashed, tmp_path: Path) -> None:
    """Would catch a client that hears of a lost engine, and not what to go on from."""
    [name] = [name for name in crashed.files() if name.startswith("states/")]
    with served(crashed.flipped(tmp_path / "copy", name, seed=0)) as server:
        step = {"model_id": crashed.model_ids[0], "seq_id": 10, "adam_params": {"learning_rate": 0.5}}
        words = server.result(server.post("/optim_step", **step)["request_id"]).json()["error"]
    assert "its state is damaged on the service's side" in words
    assert f"its last checkpoint, tinker://{crashed.model_ids[0]}/weights/kept" in words


def test_what_is_damaged_behind_a_load_is_taken_from_the_checkpoint(crashed: Crashed, tmp_path: Path) -> None:
    """Would catch a model that is given up, though the checkpoint that it was loaded from is whole."""
    [name] = [name for name in crashed.files() if name.startswith("loads/")]
    with served(crashed.flipped(tmp_path / "copy", name, seed=0)) as server:
        assert asked_on(server, crashed.model_ids, crashed.sampler_id) == crashed.expected


@pytest.mark.slow
@pytest.mark.parametrize(
    "is_written_back",
    [pytest.param(False, id="killed", marks=pytest.mark.long), pytest.param(True, id="log written back")],
)
def test_no_flipped_bit_is_loaded(crashed: Crashed, tmp_path: Path, *, is_written_back: bool) -> None:
    names = crashed.files()
    if is_written_back:
        crashed = replace(crashed, folder=shutil.copytree(crashed.folder, tmp_path / "whole"))
        with closing(sqlite3.connect(crashed.folder / "server.db")) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        names = ["server.db"]
    for name in names:
        for seed in range(60 if is_written_back else 20):  # of a database much is empty
            check(crashed, crashed.flipped(tmp_path / "copy", name, seed))
            shutil.rmtree(tmp_path / "copy")
