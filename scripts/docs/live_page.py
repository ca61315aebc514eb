"""The pictures of the live page, in Debian's chromium: the curves of a real run, and a group of its answers.

python -m scripts.docs.live_page           # a minute; writes docs/_static/live-run.png and docs/_static/live-tokens.png
python -m scripts.docs.live_page RUNS      # of the run `sums` in a folder, which is made if it is not there
"""

import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

from cookhouse.pages import run_address
from cookhouse.view.access import Access
from cookhouse.view.place import Place
from cookhouse.view.serving import bind, make_server

PICTURES = Path(__file__).parents[2] / "docs" / "_static"
NAME = "sums"
STEP = 10
"""Whose answers are half right."""
WIDTH, HEIGHT = 1200, 800
MAX_BYTES = 200_000
PATIENCE_MS = 300_000


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        runs = Path(sys.argv[1] if len(sys.argv) > 1 else folder)
        if not (runs / NAME).exists():
            command = [sys.executable, "-m", "cookhouse", "run", "rl_basic", f"log_path={runs / NAME}"]
            subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
        with served(runs) as (address, with_token), sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
            page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT})
            page.set_default_timeout(PATIENCE_MS)
            page.goto(address + with_token)
            page.get_by_role("link", name=NAME, exact=True).click()
            page.locator("svg.live").first.wait_for()
            picture(page, "live-run")
            page.goto(f"{address}{run_address(NAME, f'rollouts/{STEP}')}")
            page.locator("td a.said").first.click()
            page.locator(".member pre.tokens").first.wait_for()
            page.get_by_role("radio", name="advantage").check()
            page.evaluate("scrollTo(0, 0)")
            picture(page, "live-tokens")
            browser.close()


def picture(page: Page, name: str) -> None:
    """What the window shows."""
    path = PICTURES / f"{name}.png"
    page.wait_for_load_state("load")
    page.screenshot(path=path)
    assert path.stat().st_size < MAX_BYTES, f"{path} has {path.stat().st_size:,} bytes"


@contextmanager
def served(runs: Path) -> Iterator[tuple[str, str]]:
    """The address of a server of a folder, and that of the list with its token."""
    access = Access()
    with bind(0) as listener:
        server = make_server(Place(runs), access)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}", access.with_token("/")
        finally:
            server.should_exit = True
            thread.join()


if __name__ == "__main__":
    main()
