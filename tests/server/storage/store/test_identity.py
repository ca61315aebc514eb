"""Catches a start over a state folder with the database of another, and what such a start would delete."""

from contextlib import closing
from pathlib import Path

import pytest
from tests.server.conftest import OpenStore
from tests.server.recovery.test_recovery import served, undisturbed
from tests.waiting import wait_until

from cookhouse.errors import InputError
from cookhouse.server.sequencer.states import States
from cookhouse.server.storage.store.identity import check_state_folder, service_id
from cookhouse.server.storage.store.store import Store


def test_a_folder_and_its_database_have_one_id(tmp_path: Path, open_store: OpenStore) -> None:
    """Would catch state folders of earlier versions that are refused, and a new database that cannot be used."""
    store = open_store(tmp_path / "old.db")
    known = service_id(store.database)
    check_state_folder(tmp_path, store.database)
    assert (tmp_path / "service-id").read_text() == f"{known}\n"
    assert (tmp_path / "service-id").stat().st_mode & 0o777 == 0o600
    new = open_store(tmp_path / "new.db")
    check_state_folder(tmp_path, new.database)
    assert service_id(new.database) == known
    (tmp_path / "service-id").write_text("")  # as a full disk leaves it
    check_state_folder(tmp_path, new.database)


def test_another_database_is_refused_and_nothing_is_changed(tmp_path: Path) -> None:
    """Would catch live sessions that are deleted, since a database was named that does not know them."""
    for name in ("mine", "other"):
        (tmp_path / name).mkdir()
        with served(tmp_path / name):
            pass
    other = (tmp_path / "other" / "service-id").read_text().strip()
    (tmp_path / "mine" / "server.db").rename(tmp_path / "found")
    (tmp_path / "other" / "server.db").rename(tmp_path / "mine" / "server.db")
    stray = tmp_path / "mine" / "states" / "needed"
    stray.mkdir()
    with pytest.raises(
        InputError, match=rf"not that of this database: .*service-id says .*, and .*server.db says '{other}'"
    ):
        served(tmp_path / "mine").__enter__()
    assert stray.exists()


def test_a_lost_database_loses_no_session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Would catch states that a start with a new database deletes, before the old one is found again."""
    expected = undisturbed(tmp_path / "undisturbed", 3)
    folder = tmp_path / "state"
    folder.mkdir()
    with served(folder) as server, monkeypatch.context() as patch:
        patch.setattr(States, "_is_due", lambda *_: True)
        model_id = server.model(server.session())
        norms = [server.step(model_id, 1), server.step(model_id, 3)]
        wait_until(lambda: [path for path in (folder / "states").iterdir() if not path.name.startswith(".")])
    (folder / "server.db").rename(tmp_path / "found")
    (folder / "states" / ".begun").mkdir()
    with served(folder):
        assert list((folder / "states").iterdir()) == []
    [aside] = (folder / "states-put-aside").iterdir()
    aside.rename(folder / "states" / aside.name)
    (tmp_path / "found").rename(folder / "server.db")
    with served(folder) as server:
        assert [*norms, server.step(model_id, 5)] == expected


def test_a_restored_copy_of_a_database_keeps_the_id(tmp_path: Path) -> None:
    """Would catch a backup that is refused at the place of the lost folder."""
    with closing(Store(tmp_path / "server.db")) as store:
        check_state_folder(tmp_path / "one", store.database)
        check_state_folder(tmp_path / "two", store.database)
    assert (tmp_path / "one" / "service-id").read_text() == (tmp_path / "two" / "service-id").read_text()
