"""The charts of what was swept: errors, addresses and names in them."""

from cookhouse.report import SweepRow, SweepTable, setting_charts
from cookhouse.telemetry import find_metric


def test_charts_show_errors_and_lead_to_the_runs() -> None:
    # Catches points without a way to their run, and values that have lost their errors.
    runs = {'a"<b>': 0.5, "b": 1.0}
    rows = [
        SweepRow(name=name, settings={"seed": seed}, state="finished", value=value, stderr=0.1, is_best=value == 1.0)
        for seed, (name, value) in enumerate(runs.items())
    ]
    made = SweepTable(swept=["seed"], metric=find_metric("test/exact_match"), way="more", rows=rows)
    [chart] = setting_charts(made, lambda row: f"/runs/{row.name}/-/")
    assert chart.name == "test/exact_match over seed"
    assert chart.data is not None
    [line] = chart.data["lines"]
    assert line["points"] == [(0.0, 0.5, 0.1, '/runs/a"<b>/-/'), (1.0, 1.0, 0.1, "/runs/b/-/")]
    assert (chart.data["labels"], chart.data["is_share"]) == ([(0.0, "0"), (1.0, "1")], True)
    [plain] = setting_charts(made)
    assert plain.data is not None
    assert {point[3] for point in plain.data["lines"][0]["points"]} == {None}
