"""A run's page as a person uses it while the run goes on: by mouse, by keyboard alone, on a telephone."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, Route, expect
from tests.browser import wider_than_window
from tests.runs.kit import make_run

from cookhouse.runs.lock import hold
from cookhouse.telemetry import Event, LogSink, events, log_file

Show = Callable[..., Page]


def row(step: int) -> dict[str, Any]:
    return {"step": step, "train/loss": 3.0 - step / 10, "env/all/reward/total": step / 100, "time/step_seconds": 2.0}


def append(path: Path, *rows: dict[str, Any]) -> None:
    with path.open("a") as file:
        file.writelines(json.dumps(each) + "\n" for each in rows)


@contextmanager
def running(run: Path) -> Iterator[None]:
    """A run as its own process holds it."""
    record = json.loads((run / "run.json").read_text())
    record["launches"][0] |= {"ended_at": None, "status": None, "total_steps": 50}
    (run / "run.json").write_text(json.dumps(record))
    with hold(run):
        yield


@pytest.fixture
def run(runs: Path) -> Iterator[Path]:
    """One that is on, after five steps of fifty."""
    path = make_run(runs / "a", rows=[row(step) for step in range(5)], status="running")
    (path / "logs.log").write_text("first line\n")
    with running(path):
        yield path


def stepped(page: Page) -> list[str]:
    """Pages of steps that are asked for from now on, which are answered with an empty one."""
    asked: list[str] = []

    def answer(route: Route) -> None:
        asked.append(route.request.url.partition("/-/")[2])
        route.fulfill(status=200, content_type="text/html", body="<title>a step</title><link rel=icon href='data:,'>")

    page.route("**/-/steps/*", answer)
    return asked


def chart(page: Page, metric: str) -> Any:
    return page.locator(f'figure[data-metric="{metric}"]')


def test_a_page_follows_its_run(run: Path, show: Show) -> None:
    # Catches a page that has to be loaded again to see a step, a log line, a checkpoint, or that the run has ended.
    left = dict.fromkeys(("seconds_left_low", "seconds_left_high", "seconds_left"), 80.0)
    with log_file(run / "logs.log"):
        LogSink().write(Event(name=events.TRAINING_STEP, step=5, metrics=left))
    page = show("/runs/a/-/")
    loss = chart(page, "train/loss")
    expect(page.locator("#top")).to_contain_text("running · step 5 of 50, training, about 80 s left")
    expect(loss.locator("svg.live")).to_have_count(1)
    append(run / "metrics.jsonl", *(row(step) for step in range(5, 8)), {"step": 7, "mine/new": 1.0})
    (run / "checkpoints.jsonl").write_text(
        json.dumps({"name": "000005", "epoch": 0, "batch": 5, "step": 5, "final": False, "state_path": "tinker://s"})[
            :-1
        ]
        + ', "sampler_path": null}\n'
    )
    with (run / "logs.log").open("a") as file:
        file.write("second \x1b[2J<b>line</b>\n")
    expect(loss.locator(".caption")).to_contain_text("last 2.3 (step 8)")
    expect(page.locator("#top")).to_contain_text("step 8 of 50")
    for part in ("#curves", "#checkpoints", "#log"):
        page.locator(f"{part} > summary").click()
    expect(page.locator("#checkpoints")).to_contain_text("000005")
    expect(page.locator("#log-lines")).to_contain_text("second \\x1b[2J<b>line</b>")
    page.locator("summary", has_text="mine/").click()
    expect(chart(page, "mine/new")).to_contain_text("step 8")
    run.rename(run.with_name(".gone"))
    expect(page.locator("#top .status")).to_have_text("deleted")
    expect(loss.locator("svg.live")).to_have_count(1)


def test_a_point_is_read_and_leads_to_its_step_by_mouse(run: Path, show: Show) -> None:
    page = show("/runs/a/-/")
    asked = stepped(page)
    reward = chart(page, "env/all/reward/total")
    box = reward.locator("svg.live").bounding_box()
    assert box is not None
    # The middle of the steps 1 to 5: the axis begins 50 pixels from the left and ends 10 from the right.
    at = (box["x"] + (50 + box["width"] - 10) / 2, box["y"] + box["height"] / 2)
    page.mouse.move(*at)
    expect(reward.locator(".readout")).to_have_text("step 3: 0.02")
    append(run / "metrics.jsonl", *(row(step) for step in range(5, 9)))
    expect(reward.locator(".caption")).to_contain_text("step 9")
    expect(reward.locator(".readout")).to_have_text("step 3: 0.02")  # a chart that grows keeps what is read
    page.mouse.click(*at)
    page.wait_for_url("**/-/steps/*")
    assert asked == ["steps/5"], "the same place is another step by now"


def test_a_point_is_read_and_leads_to_its_step_by_keyboard(run: Path, show: Show) -> None:
    # Catches curves that need a mouse, and values that a screen reader is not told.
    append(run / "metrics.jsonl", {**row(5), "train/loss": 1.23456789, "test/nll": 1.0})
    page = show("/runs/a/-/", 420)
    asked = stepped(page)
    loss = chart(page, "train/loss").locator("svg.live")
    loss.focus()
    page.keyboard.press("End")
    expect(loss).to_have_attribute("aria-valuetext", "step 6: training: 1.2346 (1.23456789)")
    page.keyboard.press("Home")
    for _ in range(2):
        page.keyboard.press("ArrowRight")
    expect(loss).to_have_attribute("aria-valuetext", "step 3: training: 2.8")
    page.keyboard.press("Enter")
    page.wait_for_url("**/-/steps/*")
    assert asked == ["steps/3"]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [420, 1400])
def test_it_fits_its_window(run: Path, show: Show, width: int, scheme: str) -> None:
    record = json.loads((run / "config.json").read_text())
    record["config"] |= {"a_setting_of_a_long_name_" + "x" * 60: "y" * 200}
    (run / "config.json").write_text(json.dumps(record))
    page = show("/runs/a/-/", width, scheme)
    page.locator("svg.live").first.wait_for()
    assert wider_than_window(page) == 0


def test_a_command_is_copied_or_selected(run: Path, show: Show) -> None:
    page = show("/runs/a/-/")
    page.locator("#checkpoints > summary").click()
    command = page.locator("pre.command").last
    command.focus()
    assert page.evaluate("getSelection().toString()") == f"cookhouse report {run.resolve()}"
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.evaluate("setTimeout = () => 0")  # it goes on to say that it has copied
    page.get_by_role("button", name="copy").last.click()
    expect(page.get_by_role("button", name="copied")).to_have_count(1)
    assert page.evaluate("navigator.clipboard.readText()") == f"cookhouse report {run.resolve()}"
