"""A person clicks through every kind of page: nothing fails in the console, and nothing is wider than the window."""

from collections.abc import Callable
from pathlib import Path
from typing import Literal

from playwright.sync_api import Page, expect
from tests.browser import wider_than_window
from tests.view.every_kind import make_place

CLICKS = [
    ("plain", "plain"),
    ("item by item", "plain before training → plain after step 3"),
    ("all of it", "held out 0 of plain before training"),
    ("ask it now", "Playground"),
    ("Runs", "Runs"),
    ("plain", "plain"),
    ("notes", "mine after step 3"),
    ("plain", "plain"),
    ("answers", "Answers before training and after step 3"),
    ("plain", "plain"),
    ("earlier", "Log of plain"),
    ("the run", "plain"),
    ("Experiments", "Experiments"),
    ("rates", "rates"),
    ("Evaluations", "Evaluations"),
    ("exam-a", "exam-a"),
    ("Runs", "Runs"),
    ("new", "new"),
    ("Runs", "Runs"),
    ("pairs", "pairs"),
    ("Runs", "Runs"),
    ("of a group/rl #1 50%", "of a group/rl #1 50%"),
    ("held-out rollouts", "Held-out rollouts after step 3"),
    ("of a group/rl #1 50%", "of a group/rl #1 50%"),
    ("rollouts", "Rollouts of step 3"),
    ("step 3", "Step 3"),
    ("Search and filter them", "Rollouts of step 3"),
    ("1", "Rollouts of step 3"),
    ("Rollout 1", "Rollouts of step 3"),
    ("ask it now", "Playground"),
]
"""A link of the page before, and the heading of the page that it leads to."""


WINDOWS: list[tuple[int, Literal["light", "dark"]]] = [(1400, "light"), (1400, "dark"), (420, "dark"), (420, "light")]


def test_every_page_is_clicked_through(show: Callable[..., Page], runs: Path) -> None:
    # Catches a script that fails on some page, a file that a page asks for and that is not there, a color or a style
    # that the content security policy refuses, and a table that makes a telephone scroll sideways.
    make_place(runs)
    page = show("/", 420)
    seen = set[str]()
    for link, heading in CLICKS:
        page.evaluate("for (const part of document.querySelectorAll('details.part')) part.open = true")
        page.get_by_role("link", name=link, exact=True).first.click()
        expect(page.get_by_role("heading", level=1)).to_have_text(heading)
        fits(page)
        seen.add(page.url.partition("?")[0])
    page.goto(page.url.partition("/playground")[0])
    for name in ("plain", "pairs"):
        page.get_by_role("checkbox", name=name, exact=True).check()
    page.get_by_role("button", name="compare 2 runs").click()
    expect(page.locator("svg.live").first).to_be_visible()
    fits(page)
    assert len(seen) > 15


def fits(page: Page) -> None:
    """Wait until scripts and styles are there, and look at the page in every window."""
    page.wait_for_load_state("load")
    for width, scheme in WINDOWS:
        page.emulate_media(color_scheme=scheme)
        page.set_viewport_size({"width": width, "height": 900})
        assert wider_than_window(page) == 0, (page.url, width)
        paper = page.evaluate("getComputedStyle(document.body).backgroundColor.match(/[0-9]+/g).map(Number)")
        assert (sum(paper[:3]) > 3 * 128) == (scheme == "light"), (page.url, scheme)
