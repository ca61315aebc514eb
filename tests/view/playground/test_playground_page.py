"""The playground as a person uses it, in a browser."""

import asyncio
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect
from starlette.testclient import TestClient
from tests.browser import wider_than_window
from tests.view.conftest import served
from tests.view.playground.conftest import FakeEngine
from tests.waiting import wait_until

from cookhouse.view.place import Place
from cookhouse.view.playground.playground import Playground

HOSTILE = "<script>alert(1)</script> \x1b[2J <b>bold</b>"


@pytest.fixture
def address(runs: Path, playground: Playground) -> Iterator[str]:
    """Where the folder is served, with fake answers."""
    with served(Place(runs), playground) as url:
        yield url


def test_the_page_begins_with_what_it_is_given(client: TestClient) -> None:
    """Catches a link from a run that leads to an empty form."""

    def given(query: str) -> list[str]:
        return list(client.get(f"/api/playground{query}").json()["weights"])

    assert given("") == ["cookhouse/tiny", "group/second"]  # the newest that has saved weights
    assert given("?weights=first") == ["cookhouse/tiny", "first"]
    assert given("?weights=cookhouse/tiny") == ["cookhouse/tiny", ""]
    assert given("?weights=first&weights=group/second") == ["first", "group/second"]
    assert given("?weights=tinker://first/s/1") == ["cookhouse/tiny", "tinker://first/s/1"]


def test_a_name_that_there_is_not_is_told_beside_the_form(client: TestClient) -> None:
    told = client.get("/api/playground?weights=frist&weights=first").json()
    assert "did you mean first?" in told["problem"]
    page = client.get("/playground?weights=<script>alert(1)</script>&prompt=<b>").text
    assert "<script>alert" not in page
    assert "unknown weights" in page
    assert "&lt;b&gt;" in page
    assert "has saved no checkpoint" in client.get("/playground?weights=new").text


def test_without_runs_there_are_the_models_of_the_package(client: TestClient, runs: Path) -> None:
    (runs / "first/checkpoints.jsonl").unlink()
    (runs / "group/second/checkpoints.jsonl").unlink()
    assert client.get("/api/playground").json()["weights"] == ["cookhouse/tiny", ""]


def test_what_the_model_says_now_is_three_clicks_from_the_list(show: Callable[..., Page], engine: FakeEngine) -> None:
    """Catches a page from which nobody finds the way to ask."""
    engine.says = {"cookhouse/tiny": "Who knows?", "first": "It is blue."}
    page = show("/")
    page.get_by_role("link", name="first", exact=True).click()
    page.get_by_role("link", name="ask it").first.click()
    page.get_by_label("prompt", exact=True).fill("What color is the sky?")
    page.get_by_role("button", name="Ask", exact=True).click()
    expect(page.locator("#left .said")).to_have_text("Who knows?<|im_end|>")
    expect(page.locator("#right .said")).to_have_text("It is blue.<|im_end|>")


def test_nothing_is_asked_before_the_script_listens(client: TestClient) -> None:
    """Catches a click that loads the page anew, without the question's weights and unanswered."""
    page = client.get("/playground").text
    assert re.findall(r"<button [^>]*>(Ask[^<]*)", page) == re.findall(r"<button [^>]*disabled>(Ask[^<]*)", page)


def test_two_are_asked_and_one_is_called_better(show: Callable[..., Page], engine: FakeEngine, runs: Path) -> None:
    engine.says = {"first": f"The sky is blue. {HOSTILE}", "group/second": "The sky is green."}
    page = show("/playground?weights=first&weights=group/second")
    page.get_by_label("system message").fill("Be brief.")
    page.get_by_label("prompt", exact=True).fill("What color is the sky?")
    page.keyboard.press("Control+Enter")
    left, right = page.locator("#left .said"), page.locator("#right .said")
    expect(right).to_have_text("The sky is green.<|im_end|>")
    expect(left).to_contain_text("<script>alert(1)</script> \\x1b[2J <b>bold</b>")
    expect(page.locator("#left .token.differs")).to_have_count(1)
    expect(page.locator("#right .said .token.special")).to_have_text("<|im_end|>")
    page.locator("#difference button").click()
    expect(page.locator("#left .token.differs")).to_be_focused()
    expect(page.locator("#told")).to_contain_text(", id ")
    before = page.locator("#told").inner_text()
    page.keyboard.press("ArrowLeft")
    expect(page.locator("#told")).not_to_have_text(before)
    page.locator("#left summary").click()
    expect(page.locator("#left details pre")).to_contain_text("Be brief.")
    expect(page.locator("#left .said .token").first).to_have_class(re.compile(r"l-n\d"))
    page.get_by_role("button", name="Right is better").click()
    expect(page.locator("#labeled")).to_have_text(f"Written as line 1 of {runs}/labels.jsonl.")
    expect(page.locator("#command")).to_contain_text("cookhouse run dpo dataset_path=")
    assert '"chosen_by": "group/second"' in (runs / "labels.jsonl").read_text()
    expect(page.get_by_role("button", name="Left is better")).to_be_disabled()


def test_an_answer_is_stopped_and_the_next_one_asked(show: Callable[..., Page], engine: FakeEngine) -> None:
    """Catches a stop that only the page knows of."""
    engine.waits = asyncio.Event()
    page = show("/playground?weights=first&weights=group/second")
    page.get_by_label("prompt", exact=True).fill("Why?")
    page.get_by_role("button", name="Ask", exact=True).click()
    expect(page.locator("#note")).to_have_text("answering")
    page.get_by_role("button", name="Stop").click()
    expect(page.locator("#note")).to_have_text("stopped")
    wait_until(lambda: engine.num_cancelled == 2)
    engine.waits = None
    page.get_by_role("button", name="Ask with the next seed").click()
    expect(page.get_by_label("seed")).to_have_value("1")
    expect(page.locator("#right .said")).to_contain_text("group/second")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [420, 1400])
def test_it_fits_its_window(show: Callable[..., Page], engine: FakeEngine, width: int, scheme: str) -> None:
    engine.says = {"first": "The sky is blue. " * 12, "group/second": "The sky is " + "green" * 40}
    page = show("/playground?weights=first&weights=group/second", width, scheme)
    page.get_by_label("prompt", exact=True).fill("What color is the sky?")
    page.get_by_role("button", name="Ask", exact=True).click()
    expect(page.locator("#judge")).to_be_visible()
    page.locator("#left summary").click()
    assert wider_than_window(page) == 0
    if folder := os.environ.get("COOKHOUSE_SCREENSHOTS"):
        page.screenshot(path=f"{folder}/playground-{width}-{scheme}.png", full_page=True)
