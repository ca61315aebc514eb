"""Pictures of every kind of page, at 420 and 1,400 pixels, light and dark, with the height of each.

python -m scripts.docs.screenshots RUNS OUT              # of a folder of runs
python -m scripts.docs.screenshots RUNS OUT --server URL KEY   # and of a server's page
"""

import argparse
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from playwright.sync_api import Browser, Page, sync_playwright
from scripts.docs.live_page import served

from cookhouse.pages import run_address
from cookhouse.runs.listing.find import find_runs
from cookhouse.runs.samples import evaluated_steps

WINDOWS: list[tuple[int, Literal["light", "dark"]]] = [(420, "light"), (420, "dark"), (1400, "light"), (1400, "dark")]
HEIGHT = 900
HEIGHT_WIDTH = 1280
"""At which the height of a page is told."""
QUIET_MS = 1200
"""After the last request of a page, which live ones never end."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--server", nargs=2, metavar=("URL", "KEY"))
    parser.add_argument("--only", default="", help="pages whose name has this")
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    with served(asked.runs) as (address, with_token), sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        pages = {name: address + path for name, path in live_pages(asked.runs)}
        pages |= {f"file-{file.parent.name}": file.resolve().as_uri() for file in asked.runs.glob("*/report.html")}
        if asked.server is not None:
            pages["server"] = "{}/page/#key={}".format(*asked.server)
        for name, url in pages.items():
            if asked.only in name:
                print(name, *take(browser, name, url, address + with_token, asked.out))
        browser.close()


def live_pages(runs: Path) -> Iterator[tuple[str, str]]:
    """Name and path of one page of each kind."""
    yield from {
        "runs": "/",
        "experiments": "/experiments/",
        "evaluations": "/evaluations",
        "playground": "/playground",
    }.items()
    found = find_runs(runs)
    tops = [run.name for run in found if run.parent is None]
    yield "compare", "/compare?" + "&".join(f"run={name}" for name in tops[:3])
    for run in found:
        if run.parent is not None:
            continue
        yield f"run-{run.name}", run_address(run.name)
        if run.record.get("recipe") == "sweep":
            yield f"experiment-{run.name}", f"/experiments/{run.name}"
            parts = [each.name for each in found if each.parent == run.name]
            yield "compare-sweep", "/compare?" + "&".join(f"run={name}" for name in parts[:4])
        if evaluated_steps(run.path):
            yield f"answers-{run.name}", run_address(run.name, "answers")
            yield f"items-{run.name}", f"/evaluations/compare?run={run.name}"
        steps = sorted(int(file.stem) for file in run.path.glob("examples/*.jsonl"))
        if steps:
            yield f"step-{run.name}", run_address(run.name, f"steps/{steps[-1] + 1}")
        if (run.path / "rollouts").is_dir() and steps:
            yield f"rollouts-{run.name}", run_address(run.name, f"rollouts/{steps[-1] + 1}")
            yield f"group-{run.name}", run_address(run.name, f"rollouts/{steps[-1] + 1}?group=0")


def take(browser: Browser, name: str, url: str, with_token: str, out: Path) -> list[str]:
    """Heights by width; the pictures lie in a folder."""
    told = []
    for width, scheme in [*WINDOWS, (HEIGHT_WIDTH, "light")]:
        context = browser.new_context(viewport={"width": width, "height": HEIGHT}, color_scheme=scheme)
        page = context.new_page()
        page.goto(with_token)
        page.goto(url)
        page.wait_for_timeout(QUIET_MS)
        height = seen_whole(page)
        if width != HEIGHT_WIDTH:
            page.screenshot(path=out / f"{name}-{width}-{scheme}.png", full_page=True)
        if scheme == "light":
            told.append(f"{width}:{height:,}")
        context.close()
    return told


def seen_whole(page: Page) -> int:
    """The height of a page, after all of it has been seen: charts are drawn when they are."""
    height = int(page.evaluate("document.documentElement.scrollHeight"))
    for top in range(0, min(height, 20_000), HEIGHT):
        page.evaluate(f"scrollTo(0, {top})")
        page.wait_for_timeout(150)
    page.evaluate("scrollTo(0, 0)")
    page.wait_for_timeout(QUIET_MS)
    return int(page.evaluate("document.documentElement.scrollHeight"))


if __name__ == "__main__":
    main()
