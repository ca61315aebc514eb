"""The list of all runs: what a line says, which lines there are, and that it follows what happens."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect
from starlette.testclient import TestClient
from tests.browser import wider_than_window
from tests.runs.kit import make_run

from cookhouse.runs.lock import hold
from cookhouse.telemetry import Event, LogSink, events, log_file

MEASURED = [
    {"step": 0, "test/correct": 0.25, "test/correct_stderr": 0.05},
    {"step": 9, "train/loss": 1.0, "progress/done_frac": 0.5},
    {"step": 10, "test/correct": 0.75, "test/correct_stderr": 0.0625},
]


def names(client: TestClient, query: str = "") -> list[str]:
    return [run["name"] for run in client.get(f"/api/{query}").json()["runs"]]


class TestLines:
    def test_a_run_that_ended(self, client: TestClient, runs: Path) -> None:
        # Catches a figure without its error, and a failed run without its reason.
        make_run(runs / "good", rows=MEASURED)
        bad = make_run(runs / "bad", status="failed", number=1)
        launches = json.loads((bad / "run.json").read_text())
        launches["launches"][0]["error"] = "no space left"
        (bad / "run.json").write_text(json.dumps({"launches": launches["launches"] * 2}))
        first, second = client.get("/api/").json()["runs"]
        assert first["shown"]["state"] == "failed, launch 2"
        assert first["shown"]["now"] == "no space left"
        assert second["shown"]["came_to"].endswith("25% → 75.0% ± 6.2%")
        assert second["stderr"] == "6.2%"
        page = client.get("/").text
        assert "25% → 75.0% ± 6.2%" in page
        assert "no space left" in page

    def test_a_run_that_goes_on(self, client: TestClient, runs: Path) -> None:
        # Catches a list that leaves open how long a run takes, and what it stands still for.
        run = make_run(runs / "one", rows=[{"step": 9, "progress/done_frac": 0.5}])
        launch = {**json.loads((run / "run.json").read_text())["launches"][0], "ended_at": None, "status": None}
        (run / "run.json").write_text(json.dumps({"launches": [launch | {"total_steps": 20}]}))
        left = {"seconds_left_low": 18.0, "seconds_left_high": 22.0, "seconds_left": 20.0}
        with log_file(run / "logs.log"):
            LogSink().write(Event(name=events.TRAINING_STEP, step=10, metrics={"total_steps": 20.0, **left}))
        with hold(run):
            (line,) = client.get("/api/").json()["runs"]
        assert line["status"] == "running"
        assert line["seconds_left"] == 20.0
        assert line["shown"]["now"] == "training, 18 to 22 s left"


class TestFilter:
    @pytest.fixture(autouse=True)
    def _several(self, runs: Path) -> None:
        make_run(runs / "sums", recipe="rl", rows=MEASURED)
        make_run(runs / "prose", recipe="dpo", status="failed", number=1, model_name="big/Model")
        make_run(runs / "sums-2", recipe="rl", status="interrupted", number=2)

    @pytest.mark.parametrize(
        ("query", "found"),
        [
            ("", ["sums-2", "prose", "sums"]),
            ("?recipe=rl", ["sums-2", "sums"]),
            ("?state=failed", ["prose"]),
            ("?text=MODEL+prose", ["prose"]),
            ("?text=sums&state=interrupted&recipe=rl", ["sums-2"]),
            ("?text=nothing", []),
            ("?limit=1&offset=1", ["prose"]),
            ("?offset=99", []),
        ],
    )
    def test_what_fits(self, client: TestClient, query: str, found: list[str]) -> None:
        assert names(client, query) == found

    @pytest.mark.parametrize("query", ["?state=dead", "?offset=-1", "?limit=x"])
    def test_what_is_no_filter_is_refused(self, client: TestClient, query: str) -> None:
        assert client.get(f"/api/{query}").status_code == 400
        assert client.get(f"/events/runs{query}").status_code == 400

    def test_a_page_says_what_it_left_out(self, client: TestClient) -> None:
        # Catches a long list that ends without a word.
        page = client.get("/?limit=2&text=s").text
        assert "1–2 of 3 runs" in page
        assert 'href="?text=s&amp;offset=2&amp;limit=2"' in page
        assert "None of the runs fits" in client.get("/?text=nothing").text


class TestDriven:
    """In a browser."""

    def test_a_run_appears_grows_and_goes(self, show: Callable[..., Page], runs: Path) -> None:
        # Catches a list that must be loaded again to be true.
        page = show("/")
        expect(page.get_by_text("There are no runs in")).to_be_visible()
        run = make_run(runs / "first", rows=MEASURED[:1])
        line = page.locator("tr[data-name=first]")
        expect(line.locator(".status")).to_have_text("finished")
        (run / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in MEASURED))
        expect(line).to_contain_text("25% → 75.0% ± 6.2%")
        make_run(runs / "second", number=1)
        expect(page.locator("tr[data-name] a")).to_have_text(["second", "first"])
        shutil.rmtree(run)
        expect(line.locator(".status")).to_have_text("deleted")
        expect(line.locator("input")).to_be_disabled()
        expect(page.locator("#connection")).to_have_text("first was deleted")

    def test_filtered_and_compared_by_keyboard(self, show: Callable[..., Page], runs: Path) -> None:
        # Catches ticks that a filter loses, and a page that needs a mouse.
        for number, name in enumerate(("sums", "prose", "sums-2")):
            make_run(runs / name, number=number)
        page = show("/", 420, "dark")
        assert wider_than_window(page) == 0
        button = page.locator("#list button")
        expect(button).to_be_disabled()
        page.get_by_label("words").fill("sums")  # not letter by letter: for some of them there is a list between
        expect(page.locator("#count")).to_have_text("2 of 3 runs")
        page.wait_for_url("**/?text=sums")
        page.get_by_label("sums", exact=True).press("Space")
        page.get_by_label("words").fill("prose")
        expect(page.locator("#count")).to_have_text("1 of 3 runs")
        page.get_by_label("prose", exact=True).press("Space")
        expect(button).to_have_text("compare 2 runs")
        assert page.locator("#ask").get_attribute("href") == "/playground?weights=prose&weights=sums"
        page.route("**/compare?*", lambda route: route.fulfill(body="compared"))
        button.press("Enter")
        page.wait_for_url("**/compare?run=prose&run=sums")

    def test_a_lost_connection_is_said(self, show: Callable[..., Page], runs: Path) -> None:
        # Catches a page that looks alive when nobody tells it anything.
        make_run(runs / "one")
        page = show("/")
        page.wait_for_function("document.querySelector('#connection').hidden")
        page.route("**/events/**", lambda route: route.fulfill(status=204))
        page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
        expect(page.locator("#connection")).to_have_text("connection lost; trying again")
        page.unroute("**/events/**")
        expect(page.locator("#connection")).to_be_hidden()
