"""The folder of a sweep: names of its runs, and how each of them stands."""

import csv
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.runs.kit import make_run

from cookhouse.errors import ServiceError
from cookhouse.runs import FolderSpec, RunResult, RunSummary, choose_folder, open_folder, record_failure
from cookhouse.runs.result import write_result
from cookhouse.sweeps.halving import Halving, RungResult, write_halving
from cookhouse.sweeps.record import part_names, read_sweep, write_page, write_sweep


def make_sweep(folder: Path, runs: Sequence[Mapping[str, Any]], **settings: Any) -> list[str]:
    """A sweep without its runs; the names of these."""
    folder.mkdir(parents=True)
    config = {"runs": [dict(run) for run in runs], "metric": None, "direction": None, **settings}
    (folder / "config.json").write_text(json.dumps({"recipe": "sweep", "config": config}))
    return part_names(runs)


def test_names_are_in_order_short_and_of_a_folder() -> None:
    # Catches a tenth run that stands before the second, a path that leads elsewhere, and names that are too long.
    names = part_names([{"seed": seed, "rate": 0.5} for seed in range(11)])
    assert names[:2] == ["01-seed=0", "02-seed=1"]
    assert names[-1] == "11-seed=10"
    assert names == sorted(names)
    paths = part_names([{"data": "../../etc/passwd"}, {"data": "a b/c,d=e"}, {"data": "x" * 300}, {"data": None}])
    assert paths[:2] == ["1-data=etc_passwd", "2-data=a_b_c_d_e"]
    assert all("/" not in name and len(name) <= 80 for name in paths)
    assert len(set(paths)) == 4


def test_a_run_that_failed_says_so_whatever_its_folder_says(tmp_path: Path) -> None:
    # Catches a run that ended an error ago and is shown as what it was before.
    folder = tmp_path / "sweep"
    first, second, third = make_sweep(folder, [{"seed": 1}, {"seed": 2}, {"seed": 3}])
    make_run(folder / first, rows=[{"step": 1, "test/nll": 0.5}])
    make_run(folder / second, rows=[{"step": 1, "test/nll": 0.1}])
    made = write_sweep(folder, {second: "OSError: gone, they say"})
    assert [row.state for row in made.table.rows] == ["finished", "failed", "waiting"]
    assert made.errors == {second: "OSError: gone, they say"}
    assert read_sweep(folder) == made
    with (folder / "sweep.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["run"], row["seed"], row["test/nll"], row["best"]) for row in rows] == [
        (first, "1", "0.5", "1"),
        (second, "2", "0.1", "0"),
        (third, "3", "", "0"),
    ]


def test_values_with_commas_and_breaks_stay_in_their_cells(tmp_path: Path) -> None:
    folder = tmp_path / "sweep"
    settings = ["a,b", 'he said "no"', "two\nlines"]
    make_sweep(folder, [{"note": note} for note in settings])
    write_sweep(folder, {})
    with (folder / "sweep.csv").open(encoding="utf-8", newline="") as file:
        assert [row["note"] for row in csv.DictReader(file)] == settings


def test_of_a_run_that_has_not_finished_the_table_has_what_its_rung_has(tmp_path: Path) -> None:
    # Catches steps from one file beside a value from another: a resume cuts the row of the rung off the metrics.
    folder = tmp_path / "sweep"
    stopped, cut, finished, begun = make_sweep(folder, [{"seed": seed} for seed in range(4)])
    halving = Halving(rungs=[2, 9], reduction_factor=2, metric="test/nll", direction="less")
    for run, value in ((stopped, None), (cut, 0.5), (finished, 0.4)):
        result = RungResult(run=run, rung=0, step=2, value=value, stderr=0.125, is_finished=False)
        halving.measured.append(result)
    write_halving(folder, halving)
    early = [{"step": 1, "test/nll": 8.0}]
    for run in (stopped, cut, begun):
        make_run(folder / run, rows=early, status="interrupted")
    make_run(folder / finished, rows=[*early, {"step": 9, "test/nll": 0.25}])
    write_result(result_of(folder / finished, num_steps=9))
    rows = {row.name: (row.state, row.steps, str(row.value), row.stderr) for row in read_sweep(folder).table.rows}
    assert rows == {
        stopped: ("paused", 2, "nan", 0.125),
        cut: ("paused", 2, "0.5", 0.125),
        finished: ("finished", 9, "0.25", None),
        begun: ("interrupted", None, "None", None),
    }


def test_a_sweep_that_broke_has_the_page_of_a_sweep(tmp_path: Path) -> None:
    # Catches the page of a single run, without the table, in place of it.
    config = {"runs": [{"seed": 1}, {"seed": 2}]}
    spec = FolderSpec(path=tmp_path / "sweep", recipe="sweep", config=config, seed=0, behavior="raise", free_fields=())
    folder = open_folder(spec, choose_folder(spec), write_page)
    first, second = part_names(config["runs"])
    make_run(spec.path / first, rows=[{"step": 1, "test/nll": 0.5}])
    make_run(spec.path / second, rows=[{"step": 1, "test/nll": 0.1}])
    folder.end("interrupted")
    folder.close()
    page = spec.path / "report.html"
    assert "A sweep of 2 runs" in page.read_text()
    page.write_text("before")
    record_failure(spec.path, ServiceError("the embedded server died"), write_page)
    assert "A sweep of 2 runs" in page.read_text()


def result_of(folder: Path, num_steps: int) -> RunResult[None]:
    summary = RunSummary(
        recipe="supervised",
        model_name="m",
        folder=folder,
        is_interrupted=False,
        num_steps=num_steps,
        total_steps=num_steps,
        seconds=1.0,
        figures=[],
        samples=[],
        report=None,
        state_path=None,
        sampler_path=None,
        next_command="",
    )
    return RunResult(state=None, metrics={}, artifacts={}, summary=summary)
