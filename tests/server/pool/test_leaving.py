"""Catches a server that is left without a worker of a kind."""

import pytest
from tests.server.pool.conftest import MakeMembers

from cookhouse.errors import InputError
from cookhouse.server.pool.leaving import leaver


def test_one_of_several_may_leave(make_members: MakeMembers) -> None:
    members = make_members(trainers=2, samplers=1)
    assert leaver(members, "trainer1") is members[1]
    members[1].is_leaving = True
    with pytest.raises(InputError, match="trainer0 is the last worker of its kind"):
        leaver(members, "trainer0")
    with pytest.raises(InputError, match="no worker 'trainer1' that could leave; there are trainer0 and sampler2"):
        leaver(members, "trainer1")
    with pytest.raises(InputError, match="sampler2 is the last worker of its kind"):
        leaver(members, "sampler2")
