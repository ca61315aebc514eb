"""Pages as a person opens them, in a chromium that the system has."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, expect, sync_playwright

from tests.waiting import PATIENCE_SECONDS

_NAMES = ("chromium", "chromium-browser", "google-chrome")
_REQUIRED = "COOKHOUSE_REQUIRE_BROWSER"
_PATIENCE_MS = 1000 * PATIENCE_SECONDS
_AFTER_A_FRAME = "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"
expect.set_options(timeout=_PATIENCE_MS)


@contextmanager
def browser() -> Iterator[Browser]:
    """A browser for several windows. In its thread no event loop of asyncio runs while it is open: share it among the
    tests of a module, not among those of a session.

    Where there is no chromium the test is skipped, or fails if `COOKHOUSE_REQUIRE_BROWSER` is set.
    """
    program = next(filter(None, map(shutil.which, _NAMES)), None)
    if program is None:
        (pytest.fail if os.environ.get(_REQUIRED) else pytest.skip)("needs a browser: make chromium")
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        try:
            yield started
        finally:
            started.close()


@contextmanager
def window(
    browser: Browser, address: str, width: int = 1000, *, scheme: Literal["light", "dark"] = "light"
) -> Iterator[Page]:
    """A page in a window of its own, with cookies of its own. An error in its console fails the test."""
    errors: list[str] = []

    def hear(message: ConsoleMessage) -> None:
        if message.type == "error":
            errors.append(f"{message.text} ({message.location.get('url')})")

    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
    context.set_default_timeout(_PATIENCE_MS)
    try:
        page = context.new_page()
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("console", hear)
        page.goto(address)
        page.evaluate(_AFTER_A_FRAME)  # keys and clicks before the first one are dropped
        yield page
    finally:
        context.close()
    assert not errors, "\n".join(errors)


@contextmanager
def opened(file: Path, width: int = 1000) -> Iterator[Page]:
    """A file in a browser of its own. An error of its script fails the test."""
    with browser() as started, window(started, file.resolve().as_uri(), width) as page:
        yield page


def wider_than_window(page: Page) -> int:
    """How many pixels the page is wider than its window: what must be scrolled sideways."""
    return int(page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth"))
