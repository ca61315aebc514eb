"""Who goes on at a rung, in which order, and what is kept of it."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from cookhouse.errors import InputError
from cookhouse.runs.halving import Halving, RungResult, read_halving, rungs_of, write_halving


def new(rungs: Sequence[int] = (2, 6, 18), factor: int = 3) -> Halving:
    return Halving(rungs=list(rungs), reduction_factor=factor, metric="test/nll", direction="less")


def measure(halving: Halving, run: str, rung: int, value: float | None) -> None:
    is_finished = rung + 1 == len(halving.rungs)
    step = halving.rungs[rung]
    found = RungResult(run=run, rung=rung, step=step, value=value, stderr=None, is_finished=is_finished)
    halving.measured.append(found)


def run_through(halving: Halving, values: Mapping[str, float | None]) -> list[tuple[str, int]]:
    """One at a time, each as good at every rung; the order in which they went."""
    order = []
    while (chosen := halving.next_run(list(values), ())) is not None:
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


def test_one_at_a_time_every_rung_is_whole_before_one_goes_on() -> None:
    # Catches a depth first order, which takes runs on that better ones come after, and a direction turned round.
    values = {name: float(9 - index) for index, name in enumerate("abcdefghi")}
    halving = new()
    order = run_through(halving, values)
    assert order == [*((name, 0) for name in values), ("i", 1), ("h", 1), ("g", 1), ("i", 2)]
    assert halving.num_steps == 6 * 2 + 2 * 6 + 18
    more = new()
    more.direction = "more"
    assert run_through(more, values)[9:] == [("a", 1), ("b", 1), ("c", 1), ("a", 2)]


def test_as_many_go_on_as_were_measured_so_far() -> None:
    # Catches a promotion that waits for the slowest run, and one of a run that is not among the best of those there.
    halving, names = new(), list("abcdef")
    assert [halving.next_run(names, names[:index]) for index in range(6)] == [(name, 0) for name in names]
    measure(halving, "a", 0, 5.0)
    measure(halving, "b", 0, 3.0)
    assert halving.next_run(names, list("cdef")) is None, "of two, no third is the best"
    measure(halving, "c", 0, 4.0)
    assert halving.next_run(names, list("def")) == ("b", 1)
    assert halving.next_run(names, list("bdef")) is None, "and nobody is promoted twice"
    for name in "def":
        measure(halving, name, 0, 1.0)
    assert halving.next_run(names, ["b"]) == ("d", 1)
    assert halving.next_run(names, ["b", "d"]) == ("e", 1)
    assert halving.next_run(names, ["b", "d", "e"]) is None


def test_too_few_to_part_the_best_goes_on_to_the_end() -> None:
    # Catches a sweep of which no run takes all its steps.
    assert run_through(new(), {"a": 2.0, "b": 1.0}) == [("a", 0), ("b", 0), ("b", 1), ("b", 2)]


def test_a_run_without_a_finite_value_never_goes_on() -> None:
    assert run_through(new(), {"a": None, "b": None, "c": None}) == [("a", 0), ("b", 0), ("c", 0)]
    values = {"a": None, "b": None, "c": None, "d": None, "e": None, "f": 1.0}
    assert run_through(new(), values)[6:] == [("f", 1), ("f", 2)]


def test_what_was_promoted_and_not_measured_goes_first_and_a_failed_one_is_left_out(tmp_path: Path) -> None:
    # Catches a launch after a kill that promotes another run instead, or runs one again that was measured.
    halving = new()
    names = list("abcdef")
    for index, name in enumerate(names):
        measure(halving, name, 0, float(index))
    assert halving.next_run(names, ()) == ("a", 1)
    write_halving(tmp_path, halving)
    read = read_halving(tmp_path)
    assert read == halving
    assert read is not None
    assert read.next_run(names, ()) == ("a", 1)
    assert read.next_run([name for name in names if name != "a"], ()) == ("b", 1)


def test_each_run_is_told_how_far_it_went_and_why() -> None:
    halving = new()
    run_through(halving, {"a": 3.0, "b": 2.0, "c": 1.0, "d": None})
    halving.end()
    assert halving.outcomes == {
        "a": "test/nll 3 after step 2: rank 3 of 4; 1 promoted",
        "b": "test/nll 2 after step 2: rank 2 of 4; 1 promoted",
        "c": "finished after step 18",
        "d": "test/nll diverged (not finite) after step 2: rank 4 of 4; 1 promoted",
    }


def test_what_is_no_record_is_refused(tmp_path: Path) -> None:
    assert read_halving(tmp_path) is None
    (tmp_path / "halving.json").write_text('{"rungs": [2], "reduction_factor": 3}')
    with pytest.raises(InputError, match=r"halving\.json does not hold the decisions of a sweep"):
        read_halving(tmp_path)


def test_one_whose_launch_is_still_ending_goes_on_after_it() -> None:
    # Catches a run that a second launch takes on while the first, measured already, still holds its folder.
    halving = new()
    runs = ["a", "b", "c"]
    for value, run in enumerate(runs):
        assert halving.next_run(runs, runs[:value]) == (run, 0)
        measure(halving, run, 0, float(value))
    assert halving.next_run(runs, ["a"]) is None
    assert halving.next_run(runs, ()) == ("a", 1)


def test_where_the_best_fail_or_diverge_the_next_best_goes_to_the_end() -> None:
    # Catches a sweep without a whole run, where the only one that went on has failed, or is not finite any more.
    halving = new()
    runs = ["a", "b", "c"]
    for value, run in enumerate(runs):
        assert halving.next_run(runs, ()) == (run, 0)
        measure(halving, run, 0, float(value))
    assert halving.next_run(runs, ()) == ("a", 1)
    left = ["b", "c"]
    assert halving.next_run(left, ()) == ("b", 1)
    measure(halving, "b", 1, None)
    assert halving.next_run(left, ()) == ("c", 1)
    measure(halving, "c", 1, 2.0)
    assert halving.next_run(left, ()) == ("c", 2)
    measure(halving, "c", 2, 2.0)
    assert halving.next_run(left, ()) is None
