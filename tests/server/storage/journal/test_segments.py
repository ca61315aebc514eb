"""Catches damage that is replayed, bodies that others may read, and names from a row that lead out of the folder."""

import os
import stat
from dataclasses import replace
from pathlib import Path

import pytest
import sqlalchemy as sa
from tests.server.storage.journal.examples import LARGE, Journal, answer, body, entry

from cookhouse.errors import InputError
from cookhouse.server.refusals import StorageError
from cookhouse.server.storage.journal import AddAnswer, AddEntry, DamagedBodyError, SegmentFiles
from cookhouse.server.storage.journal.segments import Place
from cookhouse.server.storage.store.tables import AnswerRecord, EntryRecord

DAMAGED = "the service's journal is damaged: .* does not hold the [0-9,]+ bytes"


@pytest.mark.parametrize("scheme", ["file", "memory", "rows"])
def test_bodies_come_back(tmp_path: Path, scheme: str) -> None:
    urls = {"file": f"file://{tmp_path}/of a run/100%", "memory": f"memory://{tmp_path.name}", "rows": "rows"}
    segments = SegmentFiles(urls[scheme])
    bodies = [b"", body(1, LARGE - 1), body(2, LARGE), b"small", body(3, 3 * LARGE)]
    places = segments.write(bodies)
    names = {place.segment for place in places} - {None}
    assert [place.segment is not None for place in places] == [
        scheme != "rows" and len(each) >= LARGE for each in bodies
    ]
    assert segments.names() == names
    assert len(names) == (scheme != "rows")
    kept = [each if place.segment is None else None for each, place in zip(bodies, places, strict=True)]
    read = SegmentFiles(urls[scheme]).read
    assert [read(place, row) for place, row in zip(places, kept, strict=True)] == bodies
    for _ in range(2):
        segments.delete(sorted(filter(None, names)))
    assert segments.names() == set()


def test_only_its_user_may_read_them(tmp_path: Path) -> None:
    segments = SegmentFiles(f"file://{tmp_path / 'journal'}")
    segments.write([body(1, LARGE)])
    (path,) = (tmp_path / "journal").iterdir()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_a_folder_with_a_space_in_its_name(tmp_path: Path) -> None:
    """Catches bodies that lie beside the state folder, where no backup looks for them."""
    folder = tmp_path / "my state" / "journal"
    SegmentFiles(folder.as_uri()).write([body(1, LARGE)])
    assert len(list(folder.iterdir())) == 1


def test_the_folder_itself_survives_a_crash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced = []
    monkeypatch.setattr(os, "fsync", lambda at: synced.append(Path(f"/proc/self/fd/{at}").readlink()))
    SegmentFiles(f"file://{tmp_path / 'journal'}")
    assert synced == [tmp_path]


@pytest.mark.parametrize("harm", ["a bit", "its end", "all"])
def test_a_damaged_segment_is_told(journal: Journal, harm: str) -> None:
    content = body(1, LARGE)
    journal.run(lambda group: group.commit(AddEntry(entry(1), content), AddAnswer(answer("train-2", content))))
    (path,) = (journal.folder / "journal").iterdir()
    if harm == "a bit":
        damaged = bytearray(path.read_bytes())
        damaged[77] ^= 1
        damaged[-77] ^= 1
        path.write_bytes(damaged)
    elif harm == "its end":
        os.truncate(path, LARGE - 1)
    else:
        path.unlink()
    with pytest.raises(DamagedBodyError, match=DAMAGED):
        journal.reader.body("train-1")
    with pytest.raises(DamagedBodyError, match=DAMAGED):
        journal.reader.answers("s")


def test_a_damaged_row_is_told(journal: Journal) -> None:
    journal.run(lambda group: group.commit(AddEntry(entry(1), b"what came"), AddAnswer(answer("train-2"))))
    with journal.store.database.writing() as session:
        session.execute(sa.update(EntryRecord).values(body=b"What came"))
        session.execute(sa.update(AnswerRecord).values(body=None))
    with pytest.raises(DamagedBodyError, match=DAMAGED):
        journal.reader.body("train-1")
    with pytest.raises(DamagedBodyError, match=DAMAGED):
        journal.reader.answers("s")


def test_what_is_not_there_is_said(journal: Journal) -> None:
    with pytest.raises(StorageError, match="has no request 'train-1'"):
        journal.reader.body("train-1")


@pytest.mark.parametrize("name", ["../secret", "/etc/passwd", "secret", "", f"{'0' * 32}.segment\n", "\0"])
def test_a_name_in_a_row_leads_nowhere_else(tmp_path: Path, name: str) -> None:
    for folder in (tmp_path, tmp_path / "journal"):
        folder.mkdir(exist_ok=True)
        (folder / "secret").write_bytes(b"secret")
    segments = SegmentFiles(f"file://{tmp_path / 'journal'}")
    place = replace(SegmentFiles("rows").write([b"secret"])[0], segment=name, offset=0)
    with pytest.raises(DamagedBodyError, match="is damaged"):
        segments.read(place, None)
    with pytest.raises(AssertionError, match="is no segment"):
        segments.delete([name])
    assert segments.names() == set()


def test_bodies_that_lie_elsewhere_are_told_of_by_name(tmp_path: Path) -> None:
    (place,) = SegmentFiles(f"file://{tmp_path}").write([body(1, LARGE)])
    with pytest.raises(DamagedBodyError, match=r"was set to rows, and segment [0-9a-f]{32}.segment lies elsewhere"):
        SegmentFiles("rows").read(place, None)


@pytest.mark.parametrize("url", ["journal", "ftp://host/journal", "s3://", ""])
def test_no_place_for_a_journal_is_said_at_the_start(url: str) -> None:
    with pytest.raises(InputError, match=r"write file:///FOLDER|scheme of a blob store|names no bucket"):
        SegmentFiles(url)


def test_a_folder_that_cannot_be_made_is_said_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"the journal cannot be kept in .*; name another place"):
        SegmentFiles(f"file://{tmp_path}/file/journal")


def test_failures_of_a_disk_or_a_cloud_are_the_stores(tmp_path: Path) -> None:
    segments = SegmentFiles(f"file://{tmp_path / 'journal'}")
    (tmp_path / "journal").rmdir()
    with pytest.raises(StorageError, match="the service's journal cannot be used: No such file"):
        segments.write([body(1, LARGE)])
    assert SegmentFiles("rows").read(Place(num_bytes=0, crc=0), b"") == b""
