"""Servers and engines killed under clients that only keep retrying: they end as if nothing had been killed."""

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.kills.killing_server import MOMENTS, OFTEN, killing_module
from tests.kills.runs import Moment, Outcome, Setting, random_moments, run

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("fused_sampling")]

FLOAT32 = Setting(loops=("supervised", "rl"), precision="float32", deterministic=True)
BFLOAT16 = Setting(loops=("supervised", "rl"), precision="bfloat16", deterministic=True)
ALONE = Setting(loops=("supervised",), precision="float32", deterministic=False)
WORKERS = replace(FLOAT32, pool=(("workers", 2),))
APART = replace(FLOAT32, pool=(("trainers", 1), ("samplers", 1)))

WholeRun = Callable[[Setting], Outcome]


@pytest.fixture(scope="module")
def whole_run(tmp_path_factory: pytest.TempPathFactory) -> WholeRun:
    """Undisturbed runs, one of each setting."""
    found: dict[Setting, Outcome] = {}

    def whole(setting: Setting) -> Outcome:
        if setting not in found:
            found[setting] = run(tmp_path_factory.mktemp(setting.name), setting)
            assert found[setting].errors == {}
        return found[setting]

    return whole


@pytest.mark.parametrize(
    ("setting", "num_moments", "settings"),
    [
        pytest.param(FLOAT32, 2, OFTEN, marks=pytest.mark.long),
        (WORKERS, 3, {}),
        pytest.param(APART, 3, OFTEN, marks=pytest.mark.long),
        pytest.param(BFLOAT16, 2, {}, marks=pytest.mark.long),
        pytest.param(ALONE, 1, {}, marks=pytest.mark.long),
    ],
    ids=lambda value: value.name if isinstance(value, Setting) else "",
)
def test_nothing_is_lost_at_random_moments(
    tmp_path: Path, whole_run: WholeRun, setting: Setting, num_moments: int, settings: dict[str, float]
) -> None:
    """Would catch a step lost or applied twice, a result gone before it was fetched, numbers drawn anew, and what a
    killed worker leaves behind: a model that nobody brings back, weights that nobody has, files, processes.
    """
    whole = whole_run(setting)
    moments = random_moments("1 " + setting.name, num_moments, whole.num_answers, setting.num_workers)
    outcome = run(tmp_path, setting, moments, module=killing_module(settings))
    assert outcome.differences(whole, setting.loops) == [], outcome.kills


def test_nothing_is_lost_when_one_of_two_workers_is_killed_or_drained(tmp_path: Path, whole_run: WholeRun) -> None:
    """Would catch models that come back where the others are, and disturb them; and what a drained worker leaves, or
    takes with it.
    """
    whole = whole_run(WORKERS)
    sixth = whole.num_answers // 6
    moments = [
        Moment(after_answers=sixth, wait_seconds=0.0, is_drain=True),
        Moment(after_answers=4 * sixth, wait_seconds=0.05, workers=(0,)),
    ]
    outcome = run(tmp_path, WORKERS, moments, module=killing_module(OFTEN))
    assert outcome.differences(whole, WORKERS.loops) == [], outcome.kills
    assert outcome.kills[0].startswith("worker0 drained"), outcome.kills
    assert outcome.kills[1].startswith("1 of 2 workers killed"), outcome.kills


LONG = "before a commit", "behind a state"


@pytest.mark.parametrize(
    ("moment", "nth"),
    [
        pytest.param(name, 3 if "state" in name else 60, marks=[pytest.mark.long] if name in LONG else [])
        for name in MOMENTS
    ],
)
def test_nothing_is_lost_at_named_moments(tmp_path: Path, whole_run: WholeRun, moment: str, nth: int) -> None:
    """Would catch a request that runs twice since its client, unanswered, sent it again; files without their row."""
    whole = whole_run(FLOAT32)
    killed = tmp_path / "killed"
    first, times = ([], 1)
    if "replay" in moment:
        # Two replays that are killed in their midst, after the kill that makes the first one.
        first, nth, times = [Moment(after_answers=80, wait_seconds=0.0)], 5, 2
    settings = {"state_seconds": 3.0} if "replay" in moment else OFTEN
    module = killing_module(settings, moment=moment, nth=nth, times=times, folder=killed)
    outcome = run(tmp_path, FLOAT32, first, module=module)
    assert len(list(killed.iterdir())) == times, "the moment never came"
    assert outcome.differences(whole, FLOAT32.loops) == []


@pytest.mark.long
def test_nothing_is_lost_when_ten_servers_are_killed_in_a_row(tmp_path: Path, whole_run: WholeRun) -> None:
    """Would catch a start that changes what the next one finds, and a replay that grows with each."""
    whole = whole_run(FLOAT32)
    chance = random.Random(1)
    moments = [Moment(after_answers=whole.num_answers // 3, wait_seconds=chance.uniform(0.0, 2.5)) for _ in range(10)]
    outcome = run(tmp_path, FLOAT32, moments)
    assert outcome.differences(whole, FLOAT32.loops) == [], outcome.kills
