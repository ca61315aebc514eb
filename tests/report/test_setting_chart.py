"""The charts of what was swept: errors, addresses and names in them."""

from cookhouse.report import SweepRow, SweepTable, setting_charts
from cookhouse.telemetry import find_metric


def test_charts_show_errors_and_lead_to_the_runs() -> None:
    # Catches points without a way to their run, an error bar beyond what a share can be, and a name that ends its
    # attribute.
    runs = {'a"<b>': 0.5, "b": 1.0}
    rows = [
        SweepRow(name=name, settings={"seed": seed}, state="finished", value=value, stderr=0.1, is_best=value == 1.0)
        for seed, (name, value) in enumerate(runs.items())
    ]
    made = SweepTable(swept=["seed"], metric=find_metric("test/exact_match"), way="more", rows=rows)
    [chart] = setting_charts(made, lambda row: f"/runs/{row.name}/-/")
    assert chart.name == "test/exact_match over seed"
    assert chart.svg.count('class="error"') == 2
    assert 'href="/runs/a&quot;&lt;b&gt;/-/"' in chart.svg
    assert "100%" in chart.svg, "the axis of a share ends where shares do"
    assert "<title>seed=1: 100% ± 10% ★</title>" in chart.svg
    [plain] = setting_charts(made)
    assert "<a " not in plain.svg
