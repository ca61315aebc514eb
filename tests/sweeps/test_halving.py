"""Which runs are promoted at a rung, in which order, and what is kept of it."""

import random
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from cookhouse.errors import InputError
from cookhouse.sweeps.halving import Halving, Job, RungResult, read_halving, rungs_of, write_halving


def new(rungs: Sequence[int] = (2, 6, 18), factor: int = 3) -> Halving:
    return Halving(rungs=list(rungs), reduction_factor=factor, metric="test/nll", direction="less")


def measure(halving: Halving, run: str, rung: int, value: float | None) -> None:
    is_finished = rung + 1 == len(halving.rungs)
    step = halving.rungs[rung]
    found = RungResult(run=run, rung=rung, step=step, value=value, stderr=None, is_finished=is_finished)
    halving.measured.append(found)


def begin(
    halving: Halving, runs: Sequence[str], running: Sequence[str] = (), *, completes_rungs: bool = True
) -> tuple[str, int] | None:
    """The next job, noted."""
    job = halving.next_job(runs, running, completes_rungs=completes_rungs)
    if job is None:
        return None
    halving.note(job)
    return job.run, job.rung


def run_through(
    halving: Halving, values: Mapping[str, float | None], *, completes_rungs: bool = True
) -> list[tuple[str, int]]:
    """One at a time, each as good at every rung; the order in which they went."""
    order = []
    while (chosen := begin(halving, list(values), completes_rungs=completes_rungs)) is not None:
        order.append(chosen)
        measure(halving, *chosen, values[chosen[0]])
    return order


@pytest.mark.parametrize(
    ("min_steps", "factor", "max_steps", "rungs"),
    [
        (2, 3, 128, [2, 6, 18, 54, 128]),
        (2, 3, 54, [2, 6, 18, 54]),
        (4, 2, 16, [4, 8, 16]),
        (5, 4, 8, [5, 8]),
    ],
)
def test_rungs_grow_by_the_factor_up_to_a_whole_run(
    min_steps: int, factor: int, max_steps: int, rungs: list[int]
) -> None:
    assert rungs_of(min_steps, factor, max_steps) == rungs


def test_one_at_a_time_every_rung_is_complete_before_a_promotion() -> None:
    # Catches a depth first order, which promotes runs that better ones come after, and a direction turned round.
    values = {name: float(9 - index) for index, name in enumerate("abcdefghi")}
    halving = new()
    order = run_through(halving, values)
    assert order == [*((name, 0) for name in values), ("i", 1), ("h", 1), ("g", 1), ("i", 2)]
    assert halving.num_steps == 6 * 2 + 2 * 6 + 18
    more = new()
    more.direction = "more"
    assert run_through(more, values)[9:] == [("a", 1), ("b", 1), ("c", 1), ("a", 2)]


def test_with_several_jobs_a_promotion_comes_before_a_new_run() -> None:
    # Catches a sweep that begins every run before it promotes one.
    values = {name: float(index) for index, name in enumerate("abcdefghi")}
    order = run_through(new(), values, completes_rungs=False)
    assert " ".join(f"{run}{rung}" for run, rung in order) == "a0 b0 c0 a1 d0 e0 f0 b1 g0 h0 i0 c1 a2"


def get_job(halving: Halving, names: Sequence[str]) -> tuple[str, int] | None:
    """The function of this name in Algorithm 2 of the ASHA paper, over runs that there is an end of."""
    for rung in reversed(range(len(halving.rungs) - 1)):
        there = sorted((each.value or 0.0, each.run) for each in halving.measured if each.rung == rung)
        candidates = [run for _, run in there[: len(there) // halving.reduction_factor]]
        promoted = {each.run for each in halving.promotions if each.rung == rung + 1}
        promotable = [run for run in candidates if run not in promoted]
        if promotable:
            return promotable[0], rung + 1
    return next(((name, 0) for name in names), None)


@pytest.mark.parametrize("seed", range(5))
def test_with_several_jobs_it_is_the_order_of_asha(seed: int) -> None:
    # Catches a lower promotion before a higher one, and one of a run that is not among the best of those there.
    chance, names, running = random.Random(seed), [f"{number:02}" for number in range(30)], list[tuple[str, int]]()
    halving, left, launched = new((1, 2, 4, 8), 2), list(names), 0
    while True:
        expected = get_job(halving, left)
        if expected is not None and len(running) < 4:
            found = begin(halving, names, [run for run, _ in running], completes_rungs=False)
            assert found == expected
            left = [name for name in left if name != expected[0]]
            running.append(expected)
            launched += 1
        elif running:
            run, rung = running.pop(chance.randrange(len(running)))
            measure(halving, run, rung, chance.random())
        else:
            break
    assert launched > 50
    assert begin(halving, names, completes_rungs=False) is None


def test_a_promotion_waits_for_nobody_that_is_still_running() -> None:
    # Catches a rung that waits for its slowest run, and a second promotion of the same one.
    halving, names = new(), list("abcd")
    for name, value in (("a", 5.0), ("b", 3.0)):
        measure(halving, name, 0, value)
    assert begin(halving, names, list("cd"), completes_rungs=False) is None, "of two, no third is the best"
    measure(halving, "c", 0, 4.0)
    assert begin(halving, names, ["d"], completes_rungs=False) == ("b", 1)
    assert begin(halving, names, list("bd"), completes_rungs=False) is None


def test_choosing_changes_nothing() -> None:
    # Catches a question, such as whether a sweep is over, that promotes a run which nobody trains.
    halving = new()
    for index, name in enumerate("abc"):
        measure(halving, name, 0, float(index))
    before = halving.model_copy(deep=True)
    job = halving.next_job(list("abc"), (), completes_rungs=True)
    assert job is not None
    assert job == halving.next_job(list("abc"), (), completes_rungs=True)
    assert halving == before
    halving.note(job)
    assert [(each.run, each.rung, each.rank, each.num_measured) for each in halving.promotions] == [("a", 1, 1, 3)]
    assert halving.next_job(list("abc"), (), completes_rungs=True) == Job("a", 1), "decided, and not noted again"


@pytest.mark.parametrize(("completes_rungs", "first"), [(True, ("c", 0)), (False, ("b", 2))])
def test_what_was_interrupted_comes_before_new_promotions(completes_rungs: bool, first: tuple[str, int]) -> None:
    # Catches a resume that promotes others first, until as many are half trained as there were launches.
    halving, names = new(factor=2), list("abcdefg")
    for index, name in enumerate("abdefg"):
        measure(halving, name, 0, float(index))
    for run in ("a", "b"):
        assert begin(halving, list("abdefg")) == (run, 1)
        measure(halving, run, 1, 1.0 if run == "b" else 2.0)
    assert begin(halving, list("abdefg"), completes_rungs=False) == ("b", 2)
    assert begin(halving, names, completes_rungs=completes_rungs) == first


def test_of_too_few_the_best_is_promoted_to_the_end() -> None:
    # Catches a sweep of which no run takes all its steps.
    assert run_through(new(), {"a": 2.0, "b": 1.0}) == [("a", 0), ("b", 0), ("b", 1), ("b", 2)]


def test_a_run_that_diverged_is_never_promoted() -> None:
    assert run_through(new(), {"a": None, "b": None, "c": None}) == [("a", 0), ("b", 0), ("c", 0)]
    values = {"a": None, "b": None, "c": None, "d": None, "e": None, "f": 1.0}
    assert run_through(new(), values)[6:] == [("f", 1), ("f", 2)]


def test_what_was_promoted_and_not_measured_goes_first_and_a_failed_one_is_left_out(tmp_path: Path) -> None:
    # Catches a launch after a kill that promotes another run instead, or runs one again that was measured.
    halving = new()
    names = list("abcdef")
    for index, name in enumerate(names):
        measure(halving, name, 0, float(index))
    assert begin(halving, names) == ("a", 1)
    write_halving(tmp_path, halving)
    read = read_halving(tmp_path)
    assert read == halving
    assert read is not None
    assert begin(read, names) == ("a", 1)
    assert begin(read, [name for name in names if name != "a"]) == ("b", 1)


def test_each_run_has_an_outcome() -> None:
    halving = new()
    run_through(halving, {"a": 3.0, "b": 2.0, "c": 1.0, "d": None})
    halving.end({})
    assert halving.outcomes == {
        "a": "test/nll 3 after step 2: rank 3 of 4; 1 promoted",
        "b": "test/nll 2 after step 2: rank 2 of 4; 1 promoted",
        "c": "finished after step 18",
        "d": "test/nll diverged (not finite) after step 2: rank 4 of 4; 1 promoted",
    }


def test_a_run_that_failed_has_an_outcome() -> None:
    # Catches a failed run that is told as one that was stopped by its rank, and one without an outcome.
    halving = new()
    for index, name in enumerate("abc"):
        measure(halving, name, 0, float(index))
    halving.end({"a": "OSError: gone", "d": "InputError: no data"})
    assert halving.outcomes["a"] == "failed after step 2: OSError: gone"
    assert halving.outcomes["d"] == "failed before step 2: InputError: no data"
    assert halving.outcomes["b"] == "test/nll 1 after step 2: rank 2 of 3; 0 promoted"
    halving.reopen()
    assert (halving.is_over, halving.outcomes) == (False, {})


def test_what_is_no_record_is_refused(tmp_path: Path) -> None:
    assert read_halving(tmp_path) is None
    (tmp_path / "halving.json").write_text('{"rungs": [2], "reduction_factor": 3}')
    with pytest.raises(InputError, match=r"halving\.json does not hold the decisions of a sweep"):
        read_halving(tmp_path)


def test_one_whose_launch_is_still_ending_is_promoted_after_it() -> None:
    # Catches a run that a second launch resumes while the first, measured already, still holds its folder.
    halving = new()
    runs = ["a", "b", "c"]
    for value, run in enumerate(runs):
        assert begin(halving, runs, runs[:value]) == (run, 0)
        measure(halving, run, 0, float(value))
    assert begin(halving, runs, ["a"]) is None
    assert begin(halving, runs) == ("a", 1)


def test_where_the_best_fail_or_diverge_the_next_best_is_promoted_to_the_end() -> None:
    # Catches a sweep without a whole run, where the only one that was promoted has failed, or is not finite any more.
    halving = new()
    runs = ["a", "b", "c"]
    for value, run in enumerate(runs):
        assert begin(halving, runs) == (run, 0)
        measure(halving, run, 0, float(value))
    assert begin(halving, runs) == ("a", 1)
    left = ["b", "c"]
    assert begin(halving, left) == ("b", 1)
    measure(halving, "b", 1, None)
    assert begin(halving, left) == ("c", 1)
    measure(halving, "c", 1, 2.0)
    assert begin(halving, left) == ("c", 2)
    measure(halving, "c", 2, 2.0)
    assert begin(halving, left) is None
