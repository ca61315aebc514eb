"""Catches servers that cannot take over a database and a folder which an older version left."""

from pathlib import Path

import pytest
from tests.server.conftest import Cluster
from tests.server.hosting import KEY
from tests.server.leases.conftest import Shared
from tests.server.storage.store.test_schema import connected
from tests.upgrade.client import Client
from tests.upgrade.folders import SETTINGS, VERSIONS, check_pending, unpack
from tests.waiting import wait_until

from cookhouse.server.leases import heartbeats


@pytest.mark.parametrize("version", VERSIONS)
def test_a_killed_servers_sessions_are_taken_over(
    version: str, tmp_path: Path, postgresql: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Would catch a lease, an entry or a file in the shared folder that is read otherwise than it was written."""
    monkeypatch.setattr(heartbeats, "SILENT_SECONDS", 1.0)
    older = unpack(version, "shared", tmp_path)
    database = postgresql.new(is_empty=True)
    with connected(database) as connection:
        connection.exec_driver_sql((older.folder / "dump.sql").read_text().replace("%", "%%"))
    with (
        Shared(older.folder, database).server(SETTINGS) as server,
        Client(server.host.url, KEY) as client,
    ):
        wait_until(lambda: client.http.get(f"/training_runs/{older.known['model_id']}").status_code == 200)
        check_pending(client, older.known, database, older.folder / "shared" / "checkpoints")
