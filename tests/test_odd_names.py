"""A path is no address: what is written below a folder lies there, whatever its name would mean in a URL."""

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest

from cookhouse.blobs import open_blobs
from cookhouse.data import data_source
from cookhouse.data.sources.source import HubSource
from cookhouse.engine.contract.urls import shared_folder
from cookhouse.models.names import parse_served
from cookhouse.registry import Artifact, NewModel, open_registry
from cookhouse.server.storage.journal import SegmentFiles
from cookhouse.server.storage.store.rows import SessionRow
from cookhouse.server.storage.store.sqlite import copy_database
from cookhouse.server.storage.store.store import Store

NAMES = ["a%20b", "r%41b", "job%2Fmain", "lr?a", "x#y", "s p", "c@d", "key=value", "a&b", "[1]", "*", "m:n", "é"]


def database(folder: Path) -> None:
    with_row = Store(folder / "server.db")
    with_row.add_session(SessionRow(session_id="s", owner="me", created_at=1.0))
    with_row.close()
    copy_database(folder / "server.db", folder / "copy.db")
    assert (folder / "copy.db").stat().st_size == (folder / "server.db").stat().st_size


def registry(folder: Path) -> None:
    new = NewModel(name="m", base_model="b", artifact=Artifact(path="tinker://m"))
    open_registry(str(folder / "models.db"), {}).register(new)
    assert open_registry(str(folder / "models.db"), {}).get("m").id == "m@1"


def journal(folder: Path) -> None:
    [place] = SegmentFiles((folder / "journal").as_uri()).write([b"x" * 300_000])
    assert SegmentFiles((folder / "journal").as_uri()).read(place, None) == b"x" * 300_000


def command(folder: Path) -> None:
    assert shared_folder((folder / "state").as_uri()) == folder / "state"


def blobs(folder: Path) -> None:
    open_blobs(str(folder / "blobs")).put("key", b"value")
    assert (folder / "blobs" / "key").read_bytes() == b"value"


def model(folder: Path) -> None:
    assert parse_served([str(folder)]) == {str(folder): str(folder)}
    assert parse_served([f"mine={folder}"]) == {"mine": str(folder)}


def rows(folder: Path) -> None:
    row = {"prompt": "q", "completion": "a"}
    (folder / "rows.jsonl").write_text(json.dumps(row) + "\n")
    (folder / "rows.csv").write_text("prompt,completion\nq,a\n")
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist([row]), folder / "rows.parquet")
    for file in ("rows.jsonl", "rows.csv", "rows.parquet"):
        assert data_source(str(folder / file)).rows.block_rows.sum() == 1
    source = data_source(str(folder))
    assert isinstance(source, HubSource)
    assert source.split.name == str(folder)


@pytest.mark.parametrize("use", [database, registry, journal, command, blobs, model, rows])
def test_files_lie_where_they_were_named(tmp_path: Path, use: Callable[[Path], None]) -> None:
    """Catches rows written into another run's database, and a file shared by folders that begin alike."""
    for name in NAMES:
        (tmp_path / name).mkdir()
        use(tmp_path / name)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(NAMES)
