"""Pages as a person opens them, in a chromium that the system has."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Page, sync_playwright

_NAMES = ("chromium", "chromium-browser", "google-chrome")


@contextmanager
def opened(page: Path, width: int = 1000) -> Iterator[Page]:
    """A file in a browser window; skips where there is no chromium. An error of a page's script fails the test."""
    program = next(filter(None, map(shutil.which, _NAMES)), None)
    if program is None:
        pytest.skip("needs a browser: apt-get install chromium")
    errors: list[str] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        try:
            shown = browser.new_page(viewport={"width": width, "height": 900})
            shown.on("pageerror", lambda error: errors.append(str(error)))
            shown.goto(page.resolve().as_uri())
            yield shown
        finally:
            browser.close()
    assert errors == []


def wider_than_window(page: Page) -> int:
    """How many pixels the page is wider than its window: what must be scrolled sideways."""
    return int(page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth"))
