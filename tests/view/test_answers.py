"""Held-out answers before and after: what changed stands first."""

from pathlib import Path

import pytest
from starlette.testclient import TestClient
from tests.pages.reader import Page
from tests.runs.kit import make_run
from tests.view.refusals import assert_refused
from tests.view.rl_run import keep_answers

HOSTILE = "</div><script>alert(1)</script>\x1b[2J\u202e"


@pytest.fixture
def run(runs: Path) -> Path:
    """Three evaluations of four questions."""
    run = make_run(runs / "a")
    keep_answers(run, 0, {"same": ("4", True), "gets": ("3", False), "loses": ("4", True), "never": ("1", False)})
    keep_answers(run, 5, {"same": ("4", True), "gets": ("3", False), "loses": ("5", False), "never": ("1", False)})
    keep_answers(run, 10, {"same": ("4", True), "gets": ("4", True), "loses": ("6", False), "never": (HOSTILE, False)})
    return run


def asked(client: TestClient, query: str) -> list[tuple[str, str]]:
    found = client.get(f"/api/runs/a/-/answers{query}").json()
    return [(each["change"], each["prompt"]) for each in found["questions"]]


@pytest.mark.usefixtures("run")
@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("", [("gained", "gets"), ("lost", "loses"), ("right", "same"), ("wrong", "never")]),
        ("?change=lost", [("lost", "loses")]),
        ("?step=5", [("lost", "loses"), ("right", "same"), ("wrong", "gets"), ("wrong", "never")]),
        ("?before=5&after=10&change=gained", [("gained", "gets")]),
        ("?text=LOSE", [("lost", "loses")]),
        ("?limit=1&offset=1", [("lost", "loses")]),
        ("?step=0&change=wrong", [("wrong", "gets"), ("wrong", "never")]),
    ],
)
def test_what_changed_stands_first(client: TestClient, query: str, expected: list[tuple[str, str]]) -> None:
    # Catches a page on which one looks for the one answer in a hundred that became wrong.
    assert asked(client, query) == expected


@pytest.mark.usefixtures("run")
def test_both_answers_stand_side_by_side(client: TestClient) -> None:
    page = Page(client.get("/runs/a/-/answers?change=lost").text)
    texts = [text.strip() for text in page.texts if text.strip()]
    place = texts.index("before training", texts.index("loses"))
    assert texts[place : place + 7] == ["before training", "✓", "right", "4", "after step 10", "✗", "wrong"]
    assert "/playground?weights=a&prompt=loses" in page.values("href")


@pytest.mark.usefixtures("run")
def test_hostile_answers_stay_text(client: TestClient) -> None:
    html = client.get("/runs/a/-/answers").text
    assert Page(html).tags.count("script") == Page(client.get("/runs/a/-/answers?change=lost").text).tags.count(
        "script"
    )
    assert "\x1b" not in html
    assert "\u202e" not in html


@pytest.mark.parametrize(
    ("query", "said"), [("?step=7", "it has some after 0, 5, 10"), ("?step=x", "no whole"), ("?change=all", "one of")]
)
@pytest.mark.usefixtures("run")
def test_what_cannot_be_shown_is_said(client: TestClient, query: str, said: str) -> None:
    assert_refused(client, f"runs/a/-/answers{query}", 400, said)


def test_a_run_without_answers_says_so(runs: Path, client: TestClient) -> None:
    make_run(runs / "b")
    assert_refused(client, "runs/b/-/answers", 404, "has answered no held-out questions yet")


def test_a_broken_file_is_said(run: Path, client: TestClient) -> None:
    (run / "samples" / "000010.json").write_text("[1]")
    assert "does not hold answers" in client.get("/runs/a/-/answers").text
