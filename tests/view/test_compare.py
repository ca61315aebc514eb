"""Runs over each other: what differs among their settings, their last values, and curves in one scale."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page as BrowserPage
from playwright.sync_api import expect
from starlette.testclient import TestClient
from tests.browser import wider_than_window
from tests.pages.reader import Page
from tests.runs.kit import make_run


def rows(first: float, count: int = 5) -> list[dict[str, Any]]:
    return [{"step": step, "train/loss": first - step / 10, "test/nll": first} for step in range(count)]


@pytest.fixture
def pair(runs: Path) -> None:
    """Two runs that differ in one setting; the second has a metric more, and a step more."""
    more = {"step": 5, "train/loss": 1.0, "mine/new": 1.0}
    make_run(runs / "a", rows=rows(3.0), learning_rate=0.1, batch_size=4)
    make_run(runs / "g/b", number=1, rows=[*rows(2.0), more], learning_rate=0.2, batch_size=4)


@pytest.mark.usefixtures("pair")
def test_only_the_settings_that_differ_are_told(client: TestClient) -> None:
    found = client.get("/api/compare?run=g/b&run=a").json()
    assert found["names"] == ["g/b", "a"]
    assert found["settings"] == [["learning_rate", ["0.2", "0.1"]]]
    loss = next(each for each in found["metrics"] if each["name"] == "train/loss")
    assert [(value["text"], value["is_best"]) for value in loss["values"]] == [("1", True), ("2.6", False)]
    page = Page(client.get("/compare?run=g/b&run=a").text)
    assert "learning_rate" in page.text
    assert "batch_size" not in page.text
    assert {"/runs/a/-/", "/runs/g/b/-/"} <= set(page.values("href"))


@pytest.mark.usefixtures("pair")
def test_curves_have_one_scale_and_lead_to_their_own_run(client: TestClient) -> None:
    # Catches a run whose line is drawn over steps of its own, and points that lead to the other run.
    answer = client.get("/api/compare/charts?run=a&run=g/b&name=train/loss&name=test/nll").json()
    assert [group["names"] for group in answer["groups"]] == [["train/loss", "test/nll"]]
    chart = answer["charts"]["train/loss"]
    addresses = {line["label"]: line["address"] for line in chart["data"]["lines"]}
    assert addresses == {"a": "/runs/a/-/steps/", "g/b": "/runs/g/b/-/steps/"}
    assert (chart["data"]["first"], chart["data"]["last"]) == (0, 6)
    assert answer["charts"]["test/nll"]["data"]["lines"][0]["address"] == "/runs/a/-/after?step="


@pytest.mark.usefixtures("pair")
@pytest.mark.parametrize(
    ("query", "status", "said"),
    [
        ("run=a", 400, "name two runs at least"),
        ("run=a&run=a", 400, "name two runs at least"),
        ("run=a&run=c", 404, "unknown run 'c'"),
    ],
)
def test_what_cannot_be_compared_is_refused_in_words(client: TestClient, query: str, status: int, said: str) -> None:
    answer = client.get(f"/api/compare?{query}")
    assert answer.status_code == status
    assert said in answer.json()["detail"]


def test_more_runs_than_colors_are_refused(client: TestClient, runs: Path) -> None:
    for number in range(9):
        make_run(runs / f"r{number}", number=number)
    query = "&".join(f"run=r{number}" for number in range(9))
    assert "9 runs are too many to compare; 8 are allowed" in client.get(f"/api/compare?{query}").json()["detail"]


@pytest.mark.usefixtures("pair")
def test_one_chooses_reads_and_opens_a_step(show: Callable[..., BrowserPage]) -> None:
    # Catches a page that needs an address typed by hand, and curves that a browser draws for one run alone.
    page = show("/compare", 420, "dark")
    page.get_by_label("g/b").check()
    page.get_by_label("a", exact=True).check()
    page.get_by_role("button", name="compare").click()
    chart = page.locator('figure[data-metric="train/loss"]')
    chart.locator("svg.live").focus()
    page.keyboard.press("Home")
    expect(chart.locator(".readout")).to_have_text("step 1: g/b: 2 · a: 3")
    assert wider_than_window(page) == 0
