"""Catches a server that is left without a worker of a kind."""

import pytest
from tests.server.pool.conftest import MakeWorkers

from cookhouse.errors import InputError


def test_one_of_several_may_leave(make_workers: MakeWorkers) -> None:
    workers = make_workers(trainers=2, samplers=1)
    assert workers.drainable("trainer1") is workers[1]
    workers[1].is_draining = True
    with pytest.raises(InputError, match="trainer0 is the last worker of its kind"):
        workers.drainable("trainer0")
    with pytest.raises(InputError, match="no worker 'trainer1' that could leave; there are trainer0 and sampler2"):
        workers.drainable("trainer1")
    with pytest.raises(InputError, match="sampler2 is the last worker of its kind"):
        workers.drainable("sampler2")
