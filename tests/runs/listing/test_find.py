"""The runs of a place, their numbers, and what a name means: catches a run that is mistaken for another."""

import json
import os
from pathlib import Path

import pytest
from tests.runs.kit import make_run

from cookhouse.errors import InputError, UnknownNameError
from cookhouse.runs import RunOverview, find_run, find_runs, overviews_of


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Runs of different ages, one with parts, one in a group, and folders that are none."""
    runs = tmp_path / "runs"
    make_run(runs / "warm", number=3)
    make_run(runs / "alpha-1", number=2)
    make_run(runs / "alpha-2", number=1)
    make_run(runs / "rlhf", number=4, recipe="pipeline")
    make_run(runs / "rlhf" / "sl", number=5)
    make_run(runs / "rlhf" / "rl", number=6, recipe="rl_basic")
    make_run(runs / "sweep" / "a", number=7)
    make_run(runs / "7", number=8)
    (runs / "model").mkdir()
    (runs / "model" / "config.json").write_text('{"architectures": []}')
    (runs / "linked").symlink_to(runs / "warm")
    (runs / "compare-a-b.html").write_text("")
    monkeypatch.chdir(tmp_path)
    return Path("runs")


def test_numbers_count_from_the_oldest_and_parts_stand_below_theirs(place: Path) -> None:
    found = {run.number: (run.name, run.parent) for run in find_runs(place)}
    assert found == {
        "1": ("alpha-2", None),
        "2": ("alpha-1", None),
        "3": ("warm", None),
        "4": ("rlhf", None),
        "4.1": ("rlhf/sl", "rlhf"),
        "4.2": ("rlhf/rl", "rlhf"),
        "5": ("sweep/a", None),
        "6": ("7", None),
    }
    shown = [overview.number for overview in overviews_of(find_runs(place))]
    assert shown == ["6", "5", "4", "4.1", "4.2", "3", "2", "1"]


def test_a_new_run_leaves_the_numbers_of_the_others(place: Path) -> None:
    before = {run.name: run.number for run in find_runs(place)}
    make_run(place / "a-new-one", number=99)
    assert {run.name: run.number for run in find_runs(place)} == {**before, "a-new-one": "7"}


@pytest.mark.parametrize(
    ("name", "means"),
    [
        ("warm", "runs/warm"),
        ("3", "runs/warm"),
        ("#3", "runs/warm"),
        ("w", "runs/warm"),
        ("runs/warm", "runs/warm"),
        ("runs/linked", "runs/linked"),
        ("7", "runs/7"),
        ("#6", "runs/7"),
        ("4.2", "runs/rlhf/rl"),
        ("rlhf/r", "runs/rlhf/rl"),
        ("rlh", "runs/rlhf"),
        ("sl", "runs/rlhf/sl"),
        ("sw", "runs/sweep/a"),
        ("a", "runs/sweep/a"),
    ],
)
def test_a_run_is_named_in_several_ways(name: str, means: str, place: Path) -> None:
    assert find_run(name, place) == Path(means)


def test_what_names_no_one_run_is_told_what_is_near(place: Path) -> None:
    with pytest.raises(InputError, match=r"'alpha' begins .*: alpha-2 \(#1\), alpha-1 \(#2\); name one of them"):
        find_run("alpha", place)
    with pytest.raises(UnknownNameError, match=r"unknown run 'wram'; did you mean warm\?; .*cookhouse runs"):
        find_run("wram", place)
    for name in ("9", "#9", "", "x" * 5000, "a\0b", "../runs", "/"):
        with pytest.raises(InputError):
            find_run(name, place)
    with pytest.raises(InputError, match=r"runs/model is a folder without a run in it"):
        find_run("runs/model", place)
    with pytest.raises(InputError, match=r"there is no run 'warm'.*elsewhere/ holds no runs"):
        find_run("warm", Path("elsewhere"))


def test_a_broken_record_is_listed_with_what_is_wrong(place: Path) -> None:
    (place / "warm" / "run.json").write_text("{")
    (place / "alpha-1" / "config.json").write_text('{"recipe": "sup')
    (place / "alpha-2" / "metrics.jsonl").write_text('{"step": 0, "train/loss": 3.5}\n{"step": 1, "tra')
    by_name = overviews(place)
    assert "run.json does not hold the launches" in str(by_name["warm"].error)
    assert "config.json cannot be read" in str(by_name["alpha-1"].error)
    assert by_name["alpha-1"].recipe is None
    assert (by_name["alpha-2"].error, by_name["alpha-2"].steps) == (None, 1)


def overviews(place: Path) -> dict[str, RunOverview]:
    return {overview.name: overview for overview in overviews_of(find_runs(place))}


def test_a_line_says_what_a_run_is_and_how_far_it_came(tmp_path: Path) -> None:
    first = {"step": 0, "train/loss": 5.0, "test/nll": 6.0, "optim/lr": 1.0, "progress/done_frac": 0.25}
    rows = [first, {"step": 0, "test/exact_match": 0.0}, {"step": 1, "train/loss": 4.0, "optim/lr": 0.5}]
    make_run(tmp_path / "going", status="interrupted", rows=rows)
    make_run(tmp_path / "over", rows=[*rows, {"step": 2, "test/exact_match": 0.75, "test/exact_match_n": 4.0}])
    make_run(tmp_path / "mine", rows=[{"step": 0, "test/bleu": 0.1}, {"step": 3, "test/bleu": 0.5, "test/bleu_n": 2.0}])
    make_run(tmp_path / "loss", rows=[{"step": 0, "train/loss": float("nan")}, {"step": 1, "train/loss": 2.0}])
    make_run(tmp_path / "bare")
    found = overviews(tmp_path)
    lines = {
        name: (run.steps, run.headline and (run.headline.name, run.headline.before, run.headline.after))
        for name, run in found.items()
    }
    assert lines == {
        "going": (2, ("train/loss", 5.0, 4.0)),
        "over": (2, ("test/exact_match", 0.0, 0.75)),
        "mine": (3, ("test/bleu", 0.1, 0.5)),
        "loss": (2, ("train/loss", None, 2.0)),
        "bare": (None, None),
    }
    assert (found["going"].status, found["going"].seconds) == ("interrupted", 10.0)


def test_only_the_ends_of_large_files_are_read(tmp_path: Path) -> None:
    """Catches a list of a hundred runs that reads gigabytes: this file is a terabyte, of nothing."""
    run = make_run(tmp_path / "large", rows=[{"step": 0, "test/nll": 6.0}])
    with (run / "metrics.jsonl").open("r+b") as file:
        try:
            file.seek(10**12)
            file.write(b'\n{"step": 9, "test/nll": 2.0, "optim/lr": 1.0}\n')
        except OSError as error:
            pytest.skip(f"no sparse files here: {error}")
    (run / "result.json").touch()
    os.truncate(run / "result.json", 10**12)
    (overview,) = overviews_of(find_runs(tmp_path))
    assert overview.headline is not None
    assert (overview.steps, overview.headline.before, overview.headline.after) == (10, 6.0, 2.0)


def test_a_run_of_runs_is_as_good_as_its_last(tmp_path: Path) -> None:
    make_run(tmp_path / "all", recipe="pipeline")
    make_run(tmp_path / "all" / "sl", number=1, rows=[{"step": 0, "test/nll": 6.0}])
    make_run(tmp_path / "all" / "rl", number=2, rows=[{"step": 0, "env/all/reward/total": 0.5}])
    headline = overviews(tmp_path)["all"].headline
    assert headline is not None
    assert headline.name == "env/all/reward/total"


def test_an_overview_is_plain_json(place: Path) -> None:
    (row,) = [overview.as_json() for overview in overviews_of(find_runs(place)) if overview.name == "warm"]
    assert json.loads(json.dumps(row)) == row
    assert (row["number"], row["path"], row["started_at"], row["status"]) == (
        "3",
        "runs/warm",
        "2026-05-01T12:03:00+00:00",
        "finished",
    )
