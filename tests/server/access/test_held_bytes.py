"""Catches a tenant that fills the memory of the server, or shuts out the others."""

import pytest

from cookhouse.server.access.bodies import HeldBytes
from cookhouse.server.refusals import BusyError


def test_one_tenants_full_share_is_its_own_affair() -> None:
    held = HeldBytes(max_bytes=400, max_owner_bytes=80)
    held.take("a", 50)
    with pytest.raises(BusyError, match="50 bytes of your requests wait, of at most 80"):
        held.take("a", 31)
    held.take("a", 30)
    held.take("b", 80)
    held.give_back("a", 50)
    held.take("a", 50)


def test_what_holds_nothing_may_begin_however_large_it_is() -> None:
    """Would catch a request that is refused for ever."""
    held = HeldBytes(max_bytes=100, max_owner_bytes=80)
    held.take("a", 1000)
    held.take("b", 1000)
    with pytest.raises(BusyError):
        held.take("a", 1)


def test_all_together_leave_each_its_own_part() -> None:
    """Would catch tenants that shut out another together, and a sum that nothing bounds."""
    held = HeldBytes(max_bytes=160, max_owner_bytes=80)
    held.take("a", 80)
    held.take("b", 75)
    held.take("c", 4)
    held.take("c", 6)
    with pytest.raises(BusyError, match="165 bytes of all tenants' requests wait"):
        held.take("c", 1)
    held.give_back("a", 80)
    held.take("c", 60)


def test_a_lease_ends_with_its_block() -> None:
    """Would catch bytes that a request which failed holds for ever."""
    held = HeldBytes(max_bytes=100, max_owner_bytes=100)
    with held.lease("a") as lease:
        lease.take(60)
        lease.take(40)
        with pytest.raises(BusyError):
            lease.take(1)
    with held.lease("a"):
        pass
    held.take("a", 100)
    assert held._by_owner == {"a": 100}
