"""Servers that share sessions, killed under clients that reach one or the other: they end as if nothing had been."""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from tests.kills.killing_server import OFTEN, killing_module
from tests.kills.runs import Moment, Outcome, random_moments, run
from tests.kills.test_kills import FLOAT32
from tests.server.conftest import Cluster

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("fused_sampling")]

TWO = replace(FLOAT32, num_servers=2)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with closing(Cluster()) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    """An undisturbed run of one server."""
    outcome = run(tmp_path_factory.mktemp("whole"), FLOAT32)
    assert outcome.errors == {}
    return outcome


@pytest.mark.long
def test_nothing_is_lost_at_random_moments(tmp_path: Path, cluster: Cluster, whole: Outcome) -> None:
    """Would catch a step that is lost or applied twice as its session goes from one server to the other, an answer
    that only the dead one had, and files, rows or processes that nobody is responsible for any more.
    """
    moments = random_moments("4", 3, whole.num_answers, num_servers=2)
    outcome = run(tmp_path, TWO, moments, module=killing_module(OFTEN), cluster=cluster)
    assert outcome.differences(whole, TWO.loops) == [], outcome.kills


def test_nothing_is_lost_when_who_takes_over_is_killed_in_its_midst(
    tmp_path: Path, cluster: Cluster, whole: Outcome
) -> None:
    """Would catch a take-over that changes what the next one finds."""
    killed = tmp_path / "killed"
    module = killing_module({"state_seconds": 3.0}, moment="during a replay", nth=5, times=2, folder=killed)
    both = Moment(after_answers=whole.num_answers // 2, wait_seconds=0.0, servers=(0, 1))
    outcome = run(tmp_path / "run", TWO, [both], module=module, cluster=cluster)
    assert len(list(killed.iterdir())) == 2, "the moment never came"
    assert outcome.differences(whole, TWO.loops) == []
