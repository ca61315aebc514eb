"""Catches a server over a folder that is not the one that the others share: what it takes over would be lost."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import sqlalchemy as sa
from tests.server.conftest import Cluster
from tests.server.storage.store.test_schema import connected

from cookhouse.errors import InputError
from cookhouse.server.leases.leases import Leases
from cookhouse.server.storage.store.identity import service_id
from cookhouse.server.storage.store.store import Store


@pytest.fixture
def store(postgresql: Cluster) -> Iterator[Store]:
    with closing(Store(postgresql.new(), is_shared=True)) as store:
        yield store


def start(store: Store, folder: Path) -> None:
    Leases(store, url="http://here:1", folder=folder, on_lost=lambda: None)


def test_a_folder_that_is_not_mounted_is_refused(store: Store, tmp_path: Path) -> None:
    """Would catch a server that makes the folder on its own disk, finds no bodies there, and ends the sessions."""
    start(store, tmp_path / "first" / "shared")
    for missing in (tmp_path / "second" / "shared", tmp_path / "first" / "shared" / "service-id" / "below"):
        with pytest.raises(InputError, match=f"mount here what the first server called {tmp_path}/first/shared"):
            start(store, missing)
    assert not (tmp_path / "second").exists()
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=f"write {service_id(store.database)} into .*/empty/service-id"):
        start(store, tmp_path / "empty")
    assert list((tmp_path / "empty").iterdir()) == []


def test_the_same_folder_may_be_mounted_anywhere(store: Store, tmp_path: Path) -> None:
    start(store, tmp_path / "shared")
    (tmp_path / "elsewhere").symlink_to(tmp_path / "shared")
    start(store, tmp_path / "elsewhere")


def test_another_service_s_folder_is_refused(store: Store, postgresql: Cluster, tmp_path: Path) -> None:
    """Would catch two databases over one folder, each of which deletes what only the other knows."""
    start(store, tmp_path / "shared")
    with closing(Store(postgresql.new(), is_shared=True)) as other:
        with pytest.raises(InputError, match="is that of another service"):
            start(other, tmp_path / "shared")
        start(other, tmp_path / "own")
    with pytest.raises(InputError, match="is that of another service"):
        start(store, tmp_path / "own")


def test_a_start_that_was_killed_is_begun_again(store: Store, tmp_path: Path) -> None:
    """Would catch a first start that leaves half of it behind, and a folder that is refused for good."""
    start(store, tmp_path / "shared")
    with store.database.writing() as session:
        session.execute(sa.text("DELETE FROM service WHERE name = 'shared folder'"))
    start(store, tmp_path / "shared")


def test_what_a_server_alone_has_called_itself_stays(store: Store, tmp_path: Path) -> None:
    """Would catch a server that becomes the first of two, and whose folder is refused since it has an id already."""
    known = service_id(store.database)
    start(store, tmp_path / "shared")
    assert (tmp_path / "shared" / "service-id").read_text().strip() == known


def test_a_folder_that_cannot_be_used_is_named(store: Store, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match=r"the shared folder .*/file/shared cannot be used: Not a directory"):
        start(store, tmp_path / "file" / "shared")
    with connected(str(store.database.backend.readers.url.render_as_string(hide_password=False))) as connection:
        assert connection.exec_driver_sql("SELECT count(*) FROM service").scalar() == 0
