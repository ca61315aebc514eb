"""Runs found and read again only where their files have changed."""

import json
import shutil
from pathlib import Path

import pytest
from tests.runs.kit import make_run

from cookhouse.errors import UnknownNameError
from cookhouse.runs.listing import find, overview
from cookhouse.runs.lock import hold
from cookhouse.view.place import Place, place_of


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the runs whose files are read, as they are."""
    names: list[str] = []

    def counted(run: find.FoundRun) -> overview.RunOverview:
        names.append(run.name)
        return overview.overview_of(run)

    monkeypatch.setattr("cookhouse.view.place.overview_of", counted)
    return names


def test_what_has_not_changed_is_not_read_again(tmp_path: Path, read: list[str]) -> None:
    # Catches a list of hundreds of runs that reads all their files at each look.
    one = make_run(tmp_path / "one")
    make_run(tmp_path / "two", number=1)
    place = Place(tmp_path)
    place.overviews()
    place.overviews()
    assert sorted(read) == ["one", "two"]
    (one / "metrics.jsonl").write_text('{"step": 0, "train_loss": 1.0}\n')
    assert place.overviews()[1].steps is not None
    assert read[2:] == ["one"]


def test_a_killed_run_is_seen(tmp_path: Path) -> None:
    # Catches a run that is kept as running: its process lets go of a lock, and no file changes.
    one = make_run(tmp_path / "one")
    launch = {**json.loads((one / "run.json").read_text())["launches"][0], "ended_at": None, "status": None}
    (one / "run.json").write_text(json.dumps({"launches": [launch]}))
    place = Place(tmp_path)
    with hold(one):
        assert [each.status for each in place.overviews()] == ["running"]
    assert [each.status for each in place.overviews()] == ["interrupted"]


def test_numbers_follow_deletions(tmp_path: Path) -> None:
    # Catches a number that was kept, by which a person would name another run on the command line.
    for number, name in enumerate(("one", "two")):
        make_run(tmp_path / name, number=number)
    place = Place(tmp_path)
    assert [(each.name, each.number) for each in place.overviews()] == [("two", "2"), ("one", "1")]
    shutil.rmtree(tmp_path / "one")
    assert [(each.name, each.number) for each in place.overviews()] == [("two", "1")]


@pytest.mark.parametrize("name", ["..", "../other", "/etc", "", ".", "one/..", "one/../../other", "link"])
def test_a_name_is_looked_up_and_no_path(tmp_path: Path, name: str) -> None:
    # Catches an address that leads out of the folder.
    make_run(tmp_path / "runs" / "one")
    make_run(tmp_path / "other")
    (tmp_path / "runs" / "link").symlink_to(tmp_path / "other")
    place = Place(tmp_path / "runs")
    assert place.run("one").path == tmp_path / "runs" / "one"
    with pytest.raises(UnknownNameError):
        place.run(name)


def test_one_run_alone(tmp_path: Path) -> None:
    # Catches a page for a run that shows its neighbors, or not the runs that it consists of.
    make_run(tmp_path / "whole")
    make_run(tmp_path / "whole" / "part", number=1)
    make_run(tmp_path / "other")
    place, name = place_of(tmp_path / "whole", under=tmp_path / "runs")
    assert name == "whole"
    assert [run.name for run in place.runs()] == ["whole", "whole/part"]
    place, name = place_of(tmp_path / "whole" / "part", under=tmp_path)
    assert (name, len(place.runs())) == ("whole/part", 3)
