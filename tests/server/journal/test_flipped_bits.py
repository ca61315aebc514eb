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
from tests.server.journal.test_restoring import Fragile, large_pass, served
from tests.waiting import wait_until

from cookhouse.errors import CookhouseError
from cookhouse.server.sequencer.states import States

SCRATCH = "workers", "server.lock"


@dataclass(frozen=True)
class Crashed:
    """A state folder as a killed server leaves it, and what its client is told when it asks on."""

    folder: Path
    model_id: str
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
        drawn = random.Random(f"{name} {seed}")
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


def asked_on(server: Fragile, model_id: str, sampler_id: str) -> list[object]:
    """A step, whose norm is that of all passes before, a pass and a step, and a sample."""
    prompt = {"chunks": [{"type": "encoded_text", "tokens": [1, 2]}]}
    step = {"model_id": model_id, "adam_params": {"learning_rate": 0.5}}
    told = [asked(server, "/optim_step", seq_id=11, **step)]
    accepted = server.forward_backward(model_id, 12)
    told.append(answered(server, accepted.json()["request_id"]) if accepted.status_code == 200 else None)
    told.append(asked(server, "/optim_step", seq_id=13, **step))
    sampling = {"sampling_params": {"max_tokens": 8, "seed": 3}, "prompt": prompt}
    return [*told, asked(server, "/asample", sampling_session_id=sampler_id, **sampling)]


@pytest.fixture(scope="module")
def crashed(tmp_path_factory: pytest.TempPathFactory) -> Crashed:
    """A model with a state, and behind it a pass in a segment, a checkpoint that was loaded, and one more pass."""
    folder = tmp_path_factory.mktemp("crashed")
    (folder / "state").mkdir()
    with served(folder / "state") as server, pytest.MonkeyPatch.context() as patch:
        model_id = server.model(server.session())
        server.step(model_id, 1)
        published = server.post("/save_weights_for_sampler", model_id=model_id, seq_id=3, sampling_session_seq_id=0)
        sampler_id = server.result(published["request_id"]).json()["sampling_session_id"]
        patch.setattr(States, "_is_due", lambda *_: True)
        server.step(model_id, 4)
        wait_until(lambda: len(list((folder / "state" / "states").glob("[!.]*"))) == 1)
        journal = server.host.service._journal
        assert journal is not None
        wait_until(lambda: journal.reader.states(model_id.split(":")[0]))
        patch.setattr(States, "_is_due", lambda *_: False)
        saved = server.post("/save_weights", model_id=model_id, seq_id=6, path="kept")
        path = server.result(saved["request_id"]).json()["path"]
        server.step(model_id, 7)
        assert asked(server, "/load_weights", model_id=model_id, seq_id=9, path=path, optimizer=True)
        large_pass(server, model_id, 10)
        shutil.copytree(folder / "state", folder / "crashed")
        expected = asked_on(server, model_id, sampler_id)
    assert None not in expected
    return Crashed(folder / "crashed", model_id, sampler_id, expected)


def check(crashed: Crashed, folder: Path) -> None:
    with suppress(CookhouseError), served(folder) as server:  # it may be refused in words
        found = asked_on(server, crashed.model_id, crashed.sampler_id)
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
        assert asked_on(server, crashed.model_id, crashed.sampler_id) == crashed.expected


@pytest.mark.parametrize("kind", ["states", "samplers", "loads", "journal", "checkpoints", "server.db-wal"])
def test_a_flipped_bit_is_told(crashed: Crashed, tmp_path: Path, kind: str) -> None:
    [name] = [name for name in crashed.files() if name.partition("/")[0] == kind]
    check(crashed, crashed.flipped(tmp_path / "copy", name, seed=0))


def test_a_damaged_state_is_refused_with_the_way_out(crashed: Crashed, tmp_path: Path) -> None:
    """Would catch a client that hears of a lost engine, and not what to go on from."""
    [name] = [name for name in crashed.files() if name.startswith("states/")]
    with served(crashed.flipped(tmp_path / "copy", name, seed=0)) as server:
        step = {"model_id": crashed.model_id, "seq_id": 11, "adam_params": {"learning_rate": 0.5}}
        words = server.result(server.post("/optim_step", **step)["request_id"]).json()["error"]
    assert "its state is damaged on the service's side" in words
    assert f"its last checkpoint, tinker://{crashed.model_id}/weights/kept" in words


def test_what_is_damaged_behind_a_load_is_taken_from_the_checkpoint(crashed: Crashed, tmp_path: Path) -> None:
    """Would catch a model that is given up, though the checkpoint that it was loaded from is whole."""
    [name] = [name for name in crashed.files() if name.startswith("loads/")]
    with served(crashed.flipped(tmp_path / "copy", name, seed=0)) as server:
        assert asked_on(server, crashed.model_id, crashed.sampler_id) == crashed.expected


@pytest.mark.slow
@pytest.mark.parametrize("is_written_back", [False, True], ids=["killed", "log written back"])
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
