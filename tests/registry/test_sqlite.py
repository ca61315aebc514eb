"""The embedded registry: its file, several processes, and what it refuses to touch."""

import sqlite3
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from tests.registry.kit import new_model
from tests.waiting import next_line

from cookhouse.errors import InputError
from cookhouse.registry import ArtifactState, ModelStage, Query, artifact_state, sqlite
from cookhouse.registry.sqlite import SqliteRegistry

REGISTER = """
import sys
from pathlib import Path
from cookhouse.registry import Artifact, NewModel
from cookhouse.registry.sqlite import SqliteRegistry
file, process = Path(sys.argv[1]), sys.argv[2]
print("ready", flush=True)
sys.stdin.readline()
for number in range(10):
    path = f"tinker://{process}-{number}/weights/final"
    print(SqliteRegistry(file).register(NewModel(name="sums", base_model="m", artifact=Artifact(path=path))).id)
"""


def test_processes_that_register_at_once_lose_nothing(tmp_path: Path) -> None:
    """Would catch a number given twice, a row overwritten, and a file that two processes make at the same time."""
    file = tmp_path / "registry.db"
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", REGISTER, str(file), str(number)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(3)
    ]
    for process in processes:
        assert next_line(process) == "ready\n"
    answers = []
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    for process in processes:
        out, _ = process.communicate(timeout=60)
        assert process.returncode == 0
        answers += out.split()
    wanted = {f"sums@{number}" for number in range(1, 31)}
    assert len(answers) == 30
    assert set(answers) == wanted
    assert {version.id for version in SqliteRegistry(file).find(Query())} == wanted


def test_a_registry_of_a_newer_version_is_refused_and_untouched(tmp_path: Path) -> None:
    file = tmp_path / "registry.db"
    SqliteRegistry(file).register(new_model(tmp_path / "a"))
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("PRAGMA user_version = 2")
    before = file.read_bytes()
    with pytest.raises(InputError, match=r"registry\.db was made by a newer version of cookhouse \(schema 2, this one"):
        SqliteRegistry(file)
    assert file.read_bytes() == before
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["registry.db"]


def test_another_database_is_refused_and_untouched(tmp_path: Path) -> None:
    """Would catch our tables in somebody's database, such as a server's."""
    file = tmp_path / "server.db"
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("CREATE TABLE sessions (id)")
    before = file.read_bytes()
    with pytest.raises(InputError, match="is a database, but no registry of models; name another file"):
        SqliteRegistry(file)
    assert file.read_bytes() == before


def test_what_is_no_database_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.db").write_text("this is no database, but long enough to have a header" * 9)
    with pytest.raises(InputError, match=r"notes\.db cannot be opened as a registry: file is not a database"):
        SqliteRegistry(tmp_path / "notes.db")
    (tmp_path / "folder.db").mkdir()
    with pytest.raises(InputError, match=r"folder\.db cannot be opened as a registry: "):
        SqliteRegistry(tmp_path / "folder.db")


def test_reading_makes_no_file(tmp_path: Path) -> None:
    registry = SqliteRegistry(tmp_path / "runs" / "registry.db")
    assert registry.find(Query()) == []
    with pytest.raises(InputError, match="unknown registered model 'sums'; none is defined"):
        registry.get("sums")
    assert not (tmp_path / "runs").exists()


def test_an_empty_file_is_a_registry_without_versions(tmp_path: Path) -> None:
    (tmp_path / "registry.db").touch()
    registry = SqliteRegistry(tmp_path / "registry.db")
    assert registry.find(Query()) == []
    assert registry.register(new_model(tmp_path / "a")).id == "sums@1"


def test_what_fails_changes_nothing(tmp_path: Path) -> None:
    """Would catch a production version that is archived although the other one never came there."""
    registry = SqliteRegistry(tmp_path / "registry.db")
    for folder in "ab":
        registry.register(new_model(tmp_path / folder))
    registry.promote("sums@1", ModelStage.PRODUCTION)
    with closing(sqlite3.connect(tmp_path / "registry.db")) as connection:
        connection.execute(
            "CREATE TRIGGER t BEFORE UPDATE ON versions WHEN NEW.version = 2 BEGIN SELECT RAISE(ABORT, 'no'); END"
        )
    with pytest.raises(InputError, match=r"the registry .*registry\.db cannot be used: no$"):
        registry.promote("sums@2", ModelStage.PRODUCTION)
    assert registry.get("sums@production").id == "sums@1"


def test_a_lock_is_waited_for_and_then_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    registry = SqliteRegistry(tmp_path / "registry.db")
    registry.register(new_model(tmp_path / "a"))
    with closing(sqlite3.connect(tmp_path / "registry.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with monkeypatch.context() as context:
            context.setattr(sqlite, "_BUSY_SECONDS", 0)
            with pytest.raises(InputError, match="another program has locked it for 0 s; try again"):
                registry.promote("sums@1", ModelStage.STAGING)
        assert registry.get("sums@1").stage is ModelStage.EXPERIMENT


def test_a_registry_and_the_runs_beside_it_can_be_moved(tmp_path: Path) -> None:
    """Would catch weights that are said to be gone because a project's folder has another name."""
    before, after = tmp_path / "before", tmp_path / "after"
    before.mkdir()
    new = replace(new_model(before / "run"), run_folder=str(before / "run"))
    SqliteRegistry(before / "registry.db").register(new)
    before.rename(after)
    version = SqliteRegistry(after / "registry.db").get("sums@1")
    assert version.artifact.files == version.artifact.path == version.run_folder == str(after / "run")
    assert artifact_state(version.artifact) is ArtifactState.INTACT


def test_a_name_is_told_from_those_that_begin_with_it(tmp_path: Path) -> None:
    # Catches the newest version of another name, and a number or a stage that is found there.
    registry = SqliteRegistry(tmp_path / "registry.db")
    for number, name in enumerate(("sums", "sums-long", "sums-long", "Sums", "s_ms")):
        registry.register(new_model(tmp_path / str(number), name))
    registry.promote("sums-long@2", ModelStage.PRODUCTION)
    assert [registry.get(name).id for name in ("sums", "sums-long", "Sums")] == ["sums@1", "sums-long@2", "Sums@1"]
    for name in ("sums@2", "sums@production", "sum"):
        with pytest.raises(InputError):
            registry.get(name)
