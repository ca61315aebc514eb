"""Random programs against servers with a journal that are killed at any moment, lose engines, and find no room.

Would catch whatever a client sees of that beside a pause: an answer that is lost, doubled or another one, a request
that ran in another place, samples of other weights, and anything left over when all sessions have ended.
"""

import pytest

from cookhouse.server.pool import worker_handle
from cookhouse.server.pool.plans import plans_of
from tests.simulation.history import BrokenPromiseError
from tests.simulation.program import simulate

CLIENTS, REQUESTS = 3, 150


# Each found a bug once.
SEEDS = [17, 33, 1040]
MORE_SEEDS = [2, 4, 6, 8, 14, 19, 20, 24, 34, 36, 38, 54, 1031, 1097]


@pytest.mark.parametrize("seed", [*SEEDS, *(pytest.param(seed, marks=pytest.mark.slow) for seed in MORE_SEEDS)])
def test_a_crash_is_a_pause(seed: int) -> None:
    simulate(seed, num_clients=CLIENTS, num_requests=REQUESTS)


SHAPES = {
    "2 workers": {"workers": 2},
    "5 workers": {"workers": 5},
    "1 trainer, 2 samplers": {"trainers": 1, "samplers": 2},
    "2 trainers, 1 sampler": {"trainers": 2, "samplers": 1},
}
LONG = "5 workers", "1 trainer, 2 samplers", "2 trainers, 1 sampler"
# Each found a bug once, or has many drains and crashes.
SEEDS_OF_SEVERAL = [
    ("2 workers", 1004),
    ("2 trainers, 1 sampler", 1002),
    pytest.param("2 workers", 1015, marks=pytest.mark.slow),
    pytest.param("2 workers", 1039, marks=pytest.mark.slow),
    pytest.param("5 workers", 1002, marks=pytest.mark.slow),
    pytest.param("1 trainer, 2 samplers", 1001, marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("shape", "seed"), SEEDS_OF_SEVERAL)
def test_a_crash_of_several_workers_is_a_pause(shape: str, seed: int) -> None:
    """Workers are lost one by one, drained and added as well."""
    simulate(seed, num_clients=CLIENTS, num_requests=REQUESTS, plans=plans_of(**SHAPES[shape]))


@pytest.mark.parametrize(
    "shape", [pytest.param(shape, marks=pytest.mark.long if shape in LONG else pytest.mark.slow) for shape in SHAPES]
)
def test_a_crash_of_several_workers_is_a_pause_from_many_seeds(shape: str) -> None:
    """More: `python -m tests.simulation --num-workers 2 --seed 1000 --num-seeds 100`."""
    for seed in range(1000, 1020):
        simulate(seed, num_clients=CLIENTS, num_requests=REQUESTS, plans=plans_of(**SHAPES[shape]))


def test_files_that_lost_workers_leave_are_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Would catch a simulation in which no save is ever under way, or that looks for no part of a file."""
    monkeypatch.setattr(worker_handle, "delete_written", lambda _urls: None)
    with pytest.raises(BrokenPromiseError, match=r"still holds .*'files of (states|samplers)'"):
        simulate(15, num_clients=CLIENTS, num_requests=REQUESTS)


def test_a_program_with_crashes_is_the_same_from_the_same_seed() -> None:
    """Would catch a crash that a failing seed would not repeat."""
    first, second = (simulate(19, num_clients=CLIENTS, num_requests=REQUESTS) for _ in range(2))
    assert first == second
    assert first.counts["server: crashes"] > 0


@pytest.mark.long
@pytest.mark.parametrize("first", range(1000, 1500, 25))
def test_a_crash_is_a_pause_from_many_seeds(first: int) -> None:
    """25 programs each, about 20 s of processor time. More: `python -m tests.simulation`."""
    for seed in range(first, first + 25):
        simulate(seed, num_clients=CLIENTS, num_requests=REQUESTS)
