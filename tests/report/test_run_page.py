"""The page of a run is made from plain data, and nothing in that can act."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from tests.pages.reader import Page

from cookhouse.report import RecordedAnswer, RunRecord, run_page
from cookhouse.weights.checkpoints import Checkpoint

HOSTILE = "{{ 7 * 7 }}</td></svg></title></style><script>alert(1)</script>\" onload='x' & \x1b[2J\u202e\ud800"
SHOWN = HOSTILE.replace("\x1b", "\\x1b").replace("\u202e", "\\u202e").replace("\ud800", "\\ud800")


def file_name(said: str) -> str:
    """What of it a file can be called."""
    return said.replace("/", "").replace("\ud800", "\udc80").replace("\\ud800", "\\udc80")


def record(said: str) -> RunRecord:
    """A run in which `said` stands wherever a text can."""
    answer = RecordedAnswer(
        prompt=f"1 {said}",
        earlier=((f"20 {said}", f"21 {said}"),),
        expected=f"2 {said}",
        answer=f"3 {said}",
        is_correct=True,
        group=said,
    )
    return RunRecord(
        folder=Path(f"/4 {said}"),
        config={
            "recipe": f"5 {said}",
            "config": {"model_name": f"6 {said}", f"7 {said}": f"8 {said}"},
            "seed": f"9 {said}",
            "version": f"10 {said}",
            "revision": f"11 {said}",
        },
        metrics=[{"step": step, f"test/12 {said}": 1.0, f"13 {said}/x": float("nan")} for step in range(2)],
        checkpoints=[
            Checkpoint(
                name=f"14 {said}",
                epoch=0,
                batch=0,
                step=0,
                final=True,
                state_path=f"15 {said}",
                sampler_path=f"16 {said}",
            )
        ],
        answers={0: [answer], 2: [replace(answer, answer=f"17 {said}", is_correct=False)]},
        rollouts=[f"18 {file_name(said)}.html"],
        gaps=[f"19 {said}"],
    )


def test_no_text_of_a_record_is_obeyed_and_each_is_shown() -> None:
    # Catches one value that a template marks as safe, or that stands in an attribute without quotes.
    html = run_page(record(HOSTILE))
    html.encode()  # half a surrogate pair could not be written to a file
    page, harmless = Page(html), Page(run_page(record("hello")))
    assert page.tags == harmless.tags
    assert [name for name, _ in page.attributes] == [name for name, _ in harmless.attributes]
    shown = page.text
    for number in set(range(1, 22)) - {18}:
        assert f"{number} {SHOWN}" in shown, number
    assert f"18 {file_name(SHOWN)}" in shown
    assert "49" not in shown, "a text was taken for a template"
    assert "\x1b" not in html
    assert "\u202e" not in html


def test_questions_that_end_alike_keep_their_conversations() -> None:
    # Catches the same words asked in two conversations, shown as one question with the other's answer.
    asked = [
        RecordedAnswer(prompt="Where?", earlier=(("user", thing),), expected="There.", answer=thing, is_correct=False)
        for thing in ("A cat.", "A dog.")
    ]
    text = Page(run_page(replace(record("hello"), answers={0: asked}))).text
    assert [text.count(thing) for thing in ("A cat.", "A dog.")] == [2, 2]
    assert "before training: 0 of 2 correct" in text


def test_what_is_long_is_cut_everywhere() -> None:
    # Catches a page of hundreds of megabytes, of settings or names as well as of answers.
    long = "y" * 100_000
    html = run_page(replace(record(long), rollouts=[]))
    assert "3 " + "y" * 1998 + "… (98,002 more characters)" in html
    assert "8 " + "y" * 9998 + "… (90,002 more characters)" in html
    assert "y" * 10_000 not in html


@pytest.mark.parametrize(
    ("changes", "absent"),
    [
        ({"metrics": []}, ["Held-out metrics", "All curves"]),
        ({"answers": {0: []}}, ["Held-out answers"]),
        ({"rollouts": []}, ["Rollouts"]),
        ({"checkpoints": []}, ["Checkpoints"]),
        ({"config": {}}, ["Settings"]),
    ],
)
def test_a_section_without_content_is_left_out(changes: dict[str, object], absent: list[str]) -> None:
    html = run_page(replace(record("hello"), **changes))  # type: ignore[arg-type]
    headings = set(re.findall(r'<h2>([^<]*)|<details class="part"[^>]*>\s*<summary>([^<]*?) *<', html))
    every = {"Held-out metrics", "All curves", "Checkpoints", "Settings", "Time and machine"}
    shown = {*every, "Held-out answers", "Rollouts"} - set(absent)
    assert {first or second for first, second in headings} == shown


def test_only_the_newest_pages_of_rollouts_are_linked() -> None:
    page = Page(run_page(replace(record("hello"), rollouts=[f"{step:06d}.html" for step in range(1201)])))
    assert page.values("href") == [f"rollouts/{step:06d}.html" for step in range(1001, 1201)]
    assert "the last 200 of 1,201; all are in rollouts/" in page.text
