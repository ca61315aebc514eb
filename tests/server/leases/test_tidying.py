"""Catches files that a dead server left half written, and that no start ever deletes; and those of a living one."""

from pathlib import Path

from tests.server.leases.conftest import Shared, leases_of
from tests.server.test_routes import Server
from tests.waiting import wait_until


def left_by_a_save(shared: Shared) -> Path:
    """A checkpoint that a server was writing when it died."""
    unfinished = shared.folder / "shared" / "checkpoints" / f".{'a' * 32}"
    unfinished.mkdir()
    return unfinished


def stop_beating(server: Server) -> None:
    keeper = leases_of(server)._keeper
    assert keeper is not None
    keeper.stop()


def test_a_start_after_a_crash_tidies_up(shared: Shared) -> None:
    """Would catch a start that takes the row of the dead server for another one, and leaves everything there."""
    with shared.server() as dead:
        session_id = dead.session()
        stop_beating(dead)
        unfinished = left_by_a_save(shared)
        with shared.server() as next_one:
            assert not unfinished.exists()
            wait_until(lambda: next_one.host.service.sessions.has(session_id))


def test_beside_a_living_server_nothing_is_tidied(shared: Shared) -> None:
    """Would catch a start that deletes what another is just saving, or that waits for it to die."""
    with shared.server() as living:
        unfinished = left_by_a_save(shared)
        with shared.server() as second:
            assert unfinished.exists()
            assert leases_of(second).num_living == 2
            assert living.session()
