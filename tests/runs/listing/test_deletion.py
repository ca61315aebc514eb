"""Deleting takes a run's folder and nothing else: catches a link that is followed, and weights that others need."""

import fcntl
from pathlib import Path

import pytest
from tests.runs.kit import make_run

from cookhouse.errors import InputError
from cookhouse.runs import check_deletable, delete_run, find_runs, runs_that_need
from cookhouse.runs.lock import hold


def test_the_folder_goes_and_what_it_links_to_stays(tmp_path: Path) -> None:
    kept = tmp_path / "precious"
    kept.mkdir()
    (kept / "thesis.tex").write_text("mine")
    run = make_run(tmp_path / "runs" / "a")
    (run / "service" / "checkpoints" / "x").mkdir(parents=True)
    (run / "service" / "checkpoints" / "x" / "adapter.safetensors").write_bytes(b"weights")
    (run / "data").symlink_to(kept)
    (run / "thesis").symlink_to(kept / "thesis.tex")
    make_run(tmp_path / "runs" / "ab")
    delete_run(run)
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["ab"]
    assert (kept / "thesis.tex").read_text() == "mine"


def test_links_foreign_folders_and_what_is_in_use_are_refused(tmp_path: Path) -> None:
    run = make_run(tmp_path / "runs" / "a")
    part = make_run(run / "part")
    link = tmp_path / "link"
    link.symlink_to(run)
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    for name in ("config.json", "run.json", "checkpoints.jsonl"):  # of another program
        (foreign / name).write_text('{"architectures": []}')
    for path, message in ((link, "is a link, which is not followed"), (foreign, "is not surely the folder of a run")):
        with pytest.raises(InputError, match=message):
            delete_run(path)
    with hold(part), pytest.raises(InputError, match=r"a run is going on in .*part; stop it first"):
        delete_run(run)
    (part / "service").mkdir()
    with (part / "service" / "lock").open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(InputError, match=r"a service with its state in .*service is running"):
            delete_run(run)
    check_deletable(run)
    assert run.is_dir()


@pytest.mark.parametrize("name", ["runs/a", "runs/a/part", "tinker://s/weights/1", "tinker://p/weights/1"])
def test_who_was_started_from_a_run_needs_it(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run = make_run(Path("runs/a"), saved=["tinker://s/weights/1"])
    make_run(run / "part", number=1, saved=["tinker://p/weights/1"], weights=["runs/a"])
    make_run(Path("runs/child"), number=2, weights=["cookhouse/tiny", name])
    make_run(Path("runs/other"), number=3, weights=["runs/child", "cookhouse/tiny"])
    make_run(Path("runs/abc"), number=4, weights=["runs/ab"])
    assert [found.name for found in runs_that_need(run, find_runs(Path("runs")))] == ["child"]
    assert runs_that_need(Path("runs/other"), find_runs(Path("runs"))) == []
