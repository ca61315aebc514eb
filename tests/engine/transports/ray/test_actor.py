"""What runs in an actor, without Ray: its methods, called as Ray calls them."""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from cookhouse.engine.contract import Command, Done, Event, Lost, Up
from cookhouse.engine.transports.messages import decode_all, encode
from cookhouse.engine.transports.ray.actor import Place, WorkerActor
from tests.engine.transports.calls import do, options
from tests.engine.transports.engine_child import load
from tests.engine.transports.fake_child import Answering


def frame(*values: Command | None) -> bytes:
    return b"".join(piece for value in values for piece in encode(value))


def begun(folder: Path, place: Place, engine_options: Mapping[str, Any] | None = None) -> WorkerActor:
    actor = WorkerActor(1, load, Answering)
    told = {**asdict(options(folder)), "folder": str(folder)}
    actor.begin(b"".join(encode((told, dict(engine_options or {})))), tuple(place))
    return actor


def here(working_folder: Path) -> Place:
    return Place(node="n1", is_here=True, working_folder=str(working_folder), model_folders=())


def events_of(actor: WorkerActor) -> list[Event]:
    return [event for frames in actor.events() for event in decode_all(frames)]


def test_commands_are_taken_by_their_numbers_and_once(tmp_path: Path) -> None:
    """Would catch a step before its pass, and one that is done twice, where Ray calls again."""
    actor = begun(tmp_path, here(Path.cwd()))
    actor.submit(2, frame(do("pid", "d"), None))
    actor.submit(1, frame(do("pid", "c")))
    actor.submit(1, frame(do("pid", "c")))
    actor.submit(0, frame(do("pid", "a"), do("pid", "b")))
    events = events_of(actor)
    assert isinstance(events[0], Up)
    assert [event.command_id for event in events if isinstance(event, Done)] == ["a", "b", "c", "d"]


def test_a_node_that_lacks_the_folder_of_a_base_model_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "one").mkdir()
    place = Place(node="n2", is_here=False, working_folder=str(tmp_path), model_folders=("one", "two"))
    (lost,) = events_of(begun(tmp_path / "state", place))
    assert isinstance(lost, Lost)
    assert lost.failure is not None
    assert (lost.failure.blame, lost.failure.kind) == ("user", "input")
    assert lost.failure.message.startswith(f"node n2 has no folder {tmp_path / 'two'}, a base model that is to be")


def test_it_is_in_the_folder_of_the_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Would catch a base model, named relative to the server, that is looked for where `ray start` was called."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "server").mkdir()
    events_of(begun(tmp_path, here(tmp_path / "server"), {"refusal": "enough"}))
    assert Path.cwd() == tmp_path / "server"


def test_one_that_fails_ends_with_the_reason(tmp_path: Path) -> None:
    (lost,) = events_of(begun(tmp_path, here(Path.cwd()), {"refusal": "no such base model; name another"}))
    assert isinstance(lost, Lost)
    assert lost.reason == "no such base model; name another"
