"""A step and its rollouts as a person uses them: by mouse, by keyboard alone, and on a telephone."""

from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect
from tests.browser import wider_than_window
from tests.view.rl_run import group, keep_answers, keep_rollouts, make_rl_run

Show = Callable[..., Page]


@pytest.fixture
def run(runs: Path) -> Path:
    run = make_rl_run(runs / "a")
    keep_answers(run, 0, {"What is 2 + 2?": ("5", False)})
    keep_answers(run, 3, {"What is 2 + 2?": ("4", True)})
    return run


@pytest.mark.usefixtures("run")
def test_a_bar_and_a_text_filter(show: Show) -> None:
    # Catches a filter that the content security policy refuses, and one that reloads what somebody is typing in.
    page = show("/runs/a/-/rollouts/1")
    rows = page.locator(".rollouts tbody tr")
    expect(rows).to_have_count(4)
    page.get_by_role("link", name="reward -0.1").focus()
    page.keyboard.press("Enter")
    expect(rows).to_have_count(1)
    expect(page.get_by_label("reward from")).to_have_value("-0.1")
    page.get_by_role("link", name="all of them").click()
    expect(rows).to_have_count(4)
    page.get_by_label("text").fill("3 + 3")
    expect(rows).to_have_count(2)
    assert "text=3" in page.url
    expect(page.get_by_label("text")).to_be_focused()
    page.go_back()
    expect(rows).to_have_count(4)


@pytest.mark.usefixtures("run")
def test_colors_switch_and_values_are_told_by_keyboard(show: Show) -> None:
    # Catches values that only a mouse finds, and a token whose color does not change.
    page = show("/runs/a/-/rollouts/1?group=1")
    token = page.locator("#m1 pre.tokens .token").first
    before = token.evaluate("node => getComputedStyle(node).backgroundColor")
    page.keyboard.press("2")
    expect(page.get_by_role("radio", name="advantage")).to_be_checked()
    assert token.evaluate("node => getComputedStyle(node).backgroundColor") != before
    assert "by=advantage" in page.url
    page.locator("#m1 pre.tokens").focus()
    page.keyboard.press("ArrowRight")
    told = page.locator("#told")
    expect(told).to_contain_text("logprob -0.5 · advantage 1 · gap 0.25")
    first = told.inner_text()
    page.keyboard.press("ArrowRight")
    expect(told).not_to_have_text(first)
    page.keyboard.press("3")
    expect(page.get_by_role("radio", name="advantage")).to_be_checked()  # rollouts have no weights


@pytest.mark.parametrize(("width", "scheme"), [(420, "dark"), (1400, "light")])
@pytest.mark.usefixtures("run")
def test_every_page_fits_its_window(show: Show, width: int, scheme: str) -> None:
    for path in ("steps/2", "rollouts/2", "rollouts/2?group=1", "rollouts/2?group=1&member=0", "answers"):
        page = show(f"/runs/a/-/{path}", width, scheme)
        assert wider_than_window(page) == 0, path
        page.close()


def test_a_hostile_transcript_does_nothing(run: Path, show: Show) -> None:
    # Catches a script in what a model said that runs, and a terminal code that hides the rest.
    hostile = "</pre><script>document.title='taken'</script><img src=x onerror=\"document.title='taken'\">\x1b[2J"
    keep_rollouts(run, 0, [group(hostile, {hostile: 1.0, " x": 0.0}, {"log": hostile * 1000})])
    for query in ("", "?group=0", "?text=script"):
        page = show(f"/runs/a/-/rollouts/1{query}")
        assert "taken" not in page.title()
        expect(page.locator("#main img, #main script")).to_have_count(0)


@pytest.mark.usefixtures("run")
def test_from_the_step_to_an_answer(show: Show) -> None:
    # Catches a page of a step that leads nowhere.
    page = show("/runs/a/-/steps/1")
    expect(page.get_by_role("heading", name="What moved most")).to_be_visible()
    page.get_by_role("row", name="What is 3 + 3?").get_by_role("link").click()
    expect(page.locator("#m1")).to_contain_text("seven")
    expect(page.get_by_text("What is 3 + 3?").first).to_be_visible()
