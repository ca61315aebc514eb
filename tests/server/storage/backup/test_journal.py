"""Catches a backup of live sessions that lacks a body, a state or published weights."""

from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from tests.server.storage.journal.examples import LARGE, Journal, answer, body, entry, state

from cookhouse.engine.files.checksums import checksums
from cookhouse.server.storage.backup import backup
from cookhouse.server.storage.backup.backup import back_up
from cookhouse.server.storage.journal import (
    AddAnswer,
    AddEntry,
    AddSampler,
    AddSession,
    EndSession,
    GroupCommit,
    PutState,
)
from cookhouse.server.storage.store.rows import SamplerRow, SessionRow

SAMPLER = SamplerRow(
    sampler_id="s:sample:0",
    session_id="s",
    owner="me",
    base_model="b",
    model_path=None,
    created_at=1.0,
    snapshot_id="weights",
    has_file=True,
)


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backup, "_PAUSE_SECONDS", 0.0)


def unheard(_: str) -> None:
    pass


def add_folder(folder: Path) -> None:
    folder.mkdir(parents=True)
    (folder / "adapter").write_text(folder.name)


async def fill(group: GroupCommit) -> None:
    await group.commit(
        AddSession(SessionRow(session_id="s", owner="me", created_at=1.0)),
        AddSession(SessionRow(session_id="ended", owner="me", created_at=1.0)),
        AddEntry(entry(1), body(1, LARGE)),
        AddEntry(entry(2), body(2)),
        AddAnswer(answer("train-0", body(3, LARGE))),
        PutState(state("newest")),
        AddSampler(SAMPLER),
        AddSampler(replace(SAMPLER, sampler_id="s:sample:1", snapshot_id="in-memory", has_file=False)),
    )
    await group.commit(AddEntry(entry(3, session_id="ended"), body(3, LARGE)))
    for number, name in ((4, "linked"), (5, "not-yet")):
        await group.commit(AddEntry(replace(entry(number), kind="load_weights", drawn={"id": name}), b"load"))


@pytest.mark.parametrize("place", [None, "file", "memory"])
def test_a_copy_has_what_its_sessions_need(tmp_path: Path, place: str | None) -> None:
    """Would catch a copy that cannot be served without the place of the journal."""
    add_folder(tmp_path / "state" / "states" / "newest")
    url = {None: None, "file": (tmp_path / "my journal").as_uri(), "memory": f"memory://{tmp_path}/journal"}[place]
    journal = Journal(tmp_path / "state", url=url)
    journal.run(fill)
    for name in ("loads/linked", "states/.newer.unfinished", "samplers/weights", "snapshots/in-memory"):
        add_folder(journal.folder / name)
    assert back_up(journal.folder, tmp_path / "copy", journal=url, say=unheard) == []
    journal.run(lambda group: group.commit(EndSession("s", 2.0), EndSession("ended", 2.0)))
    journal.run(lambda group: group.sweep())
    journal.store.close()
    assert not journal.segments.names()
    copy = Journal(tmp_path / "copy")
    with closing(copy.store):
        assert list(copy.reader.live_owners()) == ["s", "ended"]
        assert [each.body for each in copy.reader.answers("s")] == [body(3, LARGE)]
        assert [copy.reader.body(f"train-{number}") for number in (1, 2, 3)] == [
            body(1, LARGE),
            body(2),
            body(3, LARGE),
        ]
    assert sorted(path.relative_to(copy.folder).as_posix() for path in copy.folder.glob("s*/*")) == [
        "samplers/weights",
        "states/newest",
    ]
    assert (copy.folder / "states/newest/adapter").read_text() == "newest"
    assert [path.name for path in (copy.folder / "loads").iterdir()] == ["linked"]


@pytest.mark.parametrize("kind", ["states", "samplers", "loads", "journal"])
def test_what_has_changed_is_told(tmp_path: Path, kind: str) -> None:
    """Would catch a backup that is found to be worth nothing when it is restored."""
    folders = ("states/newest", "samplers/weights", "loads/linked")
    for name in folders:
        add_folder(tmp_path / "state" / name)
    journal = Journal(tmp_path / "state")
    states, samplers, loads = (checksums(journal.folder / name) for name in folders)
    drawn = {"id": "linked", "checkpoint": {"sha256": loads}}
    journal.run(
        lambda group: group.commit(
            AddEntry(entry(1), body(1, LARGE)),
            PutState(replace(state("newest"), sha256=states)),
            AddSampler(replace(SAMPLER, sha256=samplers)),
            AddEntry(replace(entry(2), kind="load_weights", drawn=drawn), b"load"),
        )
    )
    journal.store.close()
    said: list[str] = []
    for name in ("before", "after"):
        assert back_up(journal.folder, tmp_path / name, say=said.append) == []
        [file] = [path for path in (journal.folder / kind).rglob("*") if path.is_file()]
        content = bytearray(file.read_bytes())
        content[len(content) // 2] ^= 1
        file.unlink()  # its copy has it, too
        file.write_bytes(content)
    [words] = [text for text in said if not text.startswith("copying")]
    assert words.startswith(f"{journal.folder / kind}/")
    assert "is damaged, and so is its copy: " in words
