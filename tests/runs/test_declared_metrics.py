"""What a run says of its own metrics, read where its code is not imported."""

import json
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

import pytest
from tests.runs.kit import make_run
from tests.sweeps.test_record import make_sweep

import cookhouse
from cookhouse import Metric, declare_metric
from cookhouse.report import compare, telling
from cookhouse.runs import read_record
from cookhouse.runs.listing.find import find_runs
from cookhouse.runs.listing.overview import overviews_of
from cookhouse.sweeps.record import read_sweep

pytestmark = pytest.mark.usefixtures("nothing_declared")


def run_with_mistakes(folder: Path, counts: list[float]) -> None:
    """A run of an evaluator that finds so many mistakes, one after another."""
    found = iter(counts)

    async def measure(client: object) -> Mapping[str, float | None]:
        del client
        return {"mistakes": next(found), "length": 7.0}

    def build(settings: object, renderer: object) -> Callable[[object], Awaitable[Mapping[str, float | None]]]:
        del settings, renderer
        return measure

    config = {"max_steps": 4, "batch_size": 2, "eval_every": 2, "num_eval": 2, "num_samples": 0}
    adapters = cookhouse.Adapters.noop(sinks=[], evaluators={"mine": build})
    cookhouse.run("supervised", {**config, "log_path": str(folder)}, adapters=adapters)


def test_a_users_metric_has_its_way_place_and_headline_in_another_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Catches a metric that only the process knows that declared it: no best value, no star, no place on the page."""
    declare_metric(Metric("mistakes", direction="less", label="mistakes made", chart=1, headline=1))
    declare_metric(Metric("unwritten", direction="less"))
    for name, counts in {"a": [9.0, 2.0, 5.0], "b": [9.0, 8.0, 7.0]}.items():
        run_with_mistakes(tmp_path / name, counts)
    monkeypatch.setattr("cookhouse.telemetry.declared._OWN", {})

    records = {name: read_record(tmp_path / name) for name in "ab"}
    assert list(records["a"].declared) == ["mistakes"]
    assert records["a"].headline is not None
    assert records["a"].headline.text == "mistakes made 9 → 5"
    listed = {overview.name: overview.headline for overview in overviews_of(find_runs(tmp_path))}
    assert listed == {name: record.headline for name, record in records.items()}

    mistakes, *others = compare(records).metrics
    assert (mistakes.name, list(mistakes.best)) == ("test/mistakes", [True, False])
    assert next(each for each in others if each.name == "test/length").metric.direction is None
    page = (tmp_path / "a" / "report.html").read_text(encoding="utf-8")
    assert page.index('data-metric="test/mistakes"') < page.index('data-metric="train/loss"')
    assert "2 (after step 2)" in page


def test_a_sweep_is_decided_by_a_users_metric(tmp_path: Path) -> None:
    """Catches a sweep without a best run, or with the worst one."""
    names = make_sweep(tmp_path / "sweep", [{"seed": seed} for seed in range(3)])
    row = {"name": "mistakes", "direction": "less", "headline": 1}
    for name, mistakes in zip(names, [3.0, 1.0, 2.0], strict=True):
        folder = make_run(
            tmp_path / "sweep" / name, rows=[{"step": 0, "test/mistakes": mistakes, "test/nll": mistakes}]
        )
        declare_in(folder, row)
    table = read_sweep(tmp_path / "sweep").table
    assert table.metric is not None
    assert (table.metric.name, table.way) == ("test/mistakes", "less")
    assert table.best is not None
    assert table.best.name == names[1]


def declare_in(folder: Path, *metrics: object) -> None:
    path = folder / "run.json"
    launches = json.loads(path.read_text())["launches"]
    launches[-1]["metrics"] = metrics
    path.write_text(json.dumps({"launches": launches}))


@pytest.mark.parametrize("row", [3, {"name": 3}, {"name": "a", "line": "{0.x}"}, {"name": "a", "up": 1}, {}])
def test_a_declaration_that_is_none_is_a_gap_of_the_page(tmp_path: Path, row: object) -> None:
    """Catches a run.json of a stranger that stops the reader, or is formatted with."""
    folder = make_run(tmp_path / "run", rows=[{"step": 0, "test/nll": 1.0}])
    declare_in(folder, row)
    record = read_record(folder)
    assert record.declared == {}
    assert any("run.json cannot be read" in gap for gap in record.gaps)


def test_a_metric_of_training_is_told_in_a_terminal_if_it_has_a_place_and_a_way(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run", rows=[{"step": 0, "critic/explained_variance": 0.5, "critic/loss": 2.0}])
    declare_in(folder, {"name": "critic/explained_variance", "direction": "more", "chart": 15})
    shown = telling(compare({"run": read_record(folder)}).metrics)
    assert [each.name for each in shown] == ["critic/explained_variance"]
