"""The headline of a run: decided once, recorded, and the same wherever the run is told."""

import json
from pathlib import Path
from typing import Any

import pytest

import cookhouse
from cookhouse.errors import InputError
from cookhouse.report import compare
from cookhouse.runs import find_runs, overviews_of, read_history, read_record

LONG = "We are open from nine in the morning to six in the evening, from Monday to Friday."
SMALL: dict[str, Any] = {"max_steps": 1, "batch_size": 2, "num_samples": 0, "eval_fraction": 0.5}


def trained(folder: Path, answer: str, **settings: Any) -> Any:
    rows = [{"prompt": f"{number}?", "completion": answer} for number in range(8)]
    settings = {**SMALL, "dataset": rows, "log_path": str(folder), **settings}
    return cookhouse.run("supervised", settings, adapters=cookhouse.Adapters.noop(sinks=[]))


@pytest.mark.parametrize(
    ("answer", "settings", "name"),
    [
        (LONG, {}, "test/nll"),
        ("Yes.", {}, "test/exact_match"),
        ("Yes.", {"headline": "train/loss"}, "train/loss"),
        (LONG, {"headline": "test/exact_match"}, "test/exact_match"),
        ("Yes.", {"headline": "time/tokens_per_second"}, "time/tokens_per_second"),  # that `metrics=main` leaves out
    ],
)
def test_all_that_tells_of_a_run_begins_with_its_headline(
    tmp_path: Path, answer: str, settings: dict[str, str], name: str
) -> None:
    """Catches a page, a list, a comparison or a summary that goes by another metric than the others."""
    summary = trained(tmp_path / "run", answer, **settings).summary
    record = read_record(tmp_path / "run")
    assert record.headline is not None
    [overview] = overviews_of(find_runs(tmp_path))
    assert overview.headline == record.headline
    told = [record.headline.name, summary.figures[0].name, compare({"run": record}).metrics[0].name]
    assert told == [name] * 3
    assert record.headline.text in (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    assert read_history(tmp_path / "run").launches[-1].headline == settings.get("headline")
    assert json.loads((tmp_path / "run" / "result.json").read_text())["summary"]["figures"][0]["name"] == name


def test_a_headline_that_no_run_writes_is_refused_and_one_not_measured_is_told(tmp_path: Path) -> None:
    """Catches a name with a slip in it, which leaves a run silently told by another metric."""
    with pytest.raises(InputError, match="did you mean test/exact_match"):
        trained(tmp_path / "refused", LONG, headline="exact_match")
    assert not (tmp_path / "refused").exists()
    trained(tmp_path / "run", LONG, headline="test/exact_macth")
    [warning] = read_history(tmp_path / "run").warnings
    assert warning.startswith("headline=test/exact_macth is not measured by this run")
    assert "test/exact_match, test/nll" in warning
