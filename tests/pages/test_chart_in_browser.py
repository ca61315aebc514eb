"""Charts as a browser draws them from plain data: axes, gaps, bands, switches, and texts that are no markup."""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect
from tests.browser import browser, window

from cookhouse.report import RunRecord, run_page


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with browser() as started:
        yield started


def record(rows: Sequence[dict[str, Any]], tmp_path: Path) -> RunRecord:
    return RunRecord(
        folder=tmp_path, config={}, metrics=rows, checkpoints=(), answers={}, rollouts=(), facts={"state": "finished"}
    )


@pytest.fixture
def drawn(chromium: Browser, tmp_path: Path) -> Iterator[Callable[..., Page]]:
    """Opens the page of a run with such metrics: `drawn(rows)`."""
    with ExitStack() as windows:

        def show(rows: Sequence[dict[str, Any]]) -> Page:
            path = tmp_path / "report.html"
            path.write_text(run_page(record(rows, tmp_path)), encoding="utf-8")
            return windows.enter_context(window(chromium, path.resolve().as_uri()))

        yield show


def metric(values: Sequence[Any], name: str = "m") -> list[dict[str, Any]]:
    return [{"step": step, name: value} if value is not None else {"step": step} for step, value in enumerate(values)]


def labels(page: Page) -> list[str]:
    return page.locator('.deciding svg text[text-anchor="end"]').all_text_contents()


@pytest.mark.parametrize(
    "values",
    [
        [5.0, 5.0, 5.1],
        [1e-320, 2e-320, 3e-320],
        [2e307, -2e307, 0.0],
        [1e9, 1e9 + 1e-7, 1e9],
        [-3e-6, 2e-6, 0.0],
        [1.0, 1e6, 3.0],
    ],
)
def test_any_range_has_a_few_labels_that_differ(drawn: Callable[..., Page], values: list[float]) -> None:
    # Catches division by zero on flat curves, overflow on wild ones, and an axis that says 1.0 five times.
    page = drawn(metric(values))
    found = labels(page)
    assert 1 <= len(found) <= 7
    assert len(set(found)) == len(found)
    assert not {"-0", "-0.0"} & set(found)
    assert "NaN" not in page.locator(".deciding svg").inner_html()


def test_a_gap_is_not_bridged_and_every_point_lies_in_the_chart(drawn: Callable[..., Page]) -> None:
    page = drawn(metric([3.0, -1.5, None, float("nan"), 12.25, 4.0, 4.0]))
    svg = page.locator(".deciding svg")
    assert svg.locator("polyline").count() == 2
    _, _, width, height = map(float, (svg.get_attribute("viewBox") or "").split())
    places = svg.locator("circle.dot").evaluate_all(
        "all => all.map(one => [+one.getAttribute('cx'), +one.getAttribute('cy')])"
    )
    assert len(places) == 5
    assert all(0 < x < width and 0 < y < height for x, y in places)
    assert places[2][1] < places[0][1] < places[1][1]


@pytest.mark.parametrize("values", [[0.0, 0.5, 1.0], [0.98, 0.99, 0.99], [0.0, 0.25, 0.5, 0.75]])
def test_the_axis_of_a_share_is_in_percent_and_ends_where_shares_do(
    drawn: Callable[..., Page], values: list[float]
) -> None:
    # Catches labels from -40% to 40% around an accuracy of 0, and 105% above one of 1.
    shares = [float(label.removesuffix("%")) for label in labels(drawn(metric(values, "test/exact_match")))]
    assert len(shares) > 1
    assert min(shares) >= 0
    assert max(shares) <= 100


def test_training_and_held_out_share_a_chart_with_its_errors_and_switches(drawn: Callable[..., Page]) -> None:
    # Catches a held-out loss in a chart of its own, an error nobody sees, and switches that draw nothing.
    rows: list[dict[str, Any]] = [{"step": step, "train/loss": 3.0 / (step + 1)} for step in range(40)]
    rows += [{"step": step, "test/nll": 2.0, "test/nll_stderr": 0.5} for step in (0, 20, 40)]
    page = drawn(rows)
    figure = page.locator('figure[data-metric="train/loss"]')
    expect(figure.locator(".keys")).to_have_text("trainingheld out")
    expect(figure.locator("polygon.band")).to_have_count(1)
    expect(figure.locator("svg .raw")).to_have_count(0)
    page.get_by_label("smooth").check()
    expect(figure.locator("svg .raw")).to_have_count(1)
    before = labels(page)
    page.get_by_label("log scale").check()
    assert labels(page) != before
    figure.locator("svg.live").focus()
    page.keyboard.press("Home")
    expect(figure.locator("svg.live")).to_have_attribute("aria-valuetext", "step 0: held out: 2 ± 0.5")


def test_the_name_of_a_metric_is_never_markup(drawn: Callable[..., Page]) -> None:
    page = drawn(metric([1.0, 2.0, 3.0], '"><script>document.title=1</script>\x00'))
    svg = page.locator(".deciding svg")
    assert (svg.get_attribute("aria-label") or "").startswith('"><script>document.title=1</script>\\x00')
    assert page.locator("main script").count() == 0


def test_what_is_open_is_open_on_the_next_visit(drawn: Callable[..., Page]) -> None:
    page = drawn(metric([1.0, 2.0, 3.0]))
    part = page.locator("#stages")
    assert part.get_attribute("open") is None
    part.locator("summary").click()
    expect(part).to_have_attribute("open", "")
    page.reload()
    expect(part).to_have_attribute("open", "")


def test_values_read_as_in_the_tables(drawn: Callable[..., Page]) -> None:
    page = drawn(metric([1234567.0, 0.123456789, 1e-9]))
    svg = page.locator(".deciding svg")
    svg.focus()
    told = []
    for key in ("Home", "ArrowRight", "ArrowRight"):
        page.keyboard.press(key)
        told.append(svg.get_attribute("aria-valuetext"))
    assert json.dumps(told) == json.dumps(
        ["step 1: 1,234,567", "step 2: 0.12346 (0.123456789)", "step 3: 1e-09 (1e-9)"]
    )
