"""The table of rollouts as a person uses it: by mouse, by keyboard alone, and on a telephone."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from playwright.sync_api import Page
from tests.browser import opened, wider_than_window
from tests.report.test_rollouts_page import Words, group, turn

from cookhouse.report import rollouts_page

pytestmark = pytest.mark.slow


@pytest.fixture
def page(tmp_path: Path) -> Iterator[Page]:
    """Four groups of one sample each, with the rewards 1, 0, 3 and 2, in the window of a telephone."""
    rewards = (1.0, 0.0, 3.0, 2.0)
    groups = [
        replace(group([replace(turn([0], [1 + index % 3]), reward=reward)]), group_rewards_G=[0.0])
        for index, reward in enumerate(rewards)
    ]
    path = tmp_path / "rollouts.html"
    path.write_text(rollouts_page(groups, Words(), title="rollouts"), encoding="utf-8")
    with opened(path, width=420) as shown:
        yield shown


def rewards_of(page: Page) -> list[str]:
    """The rewards of the rows that one sees, from above."""
    return page.locator("#samples tbody tr:visible td:nth-child(3)").all_inner_texts()


def test_by_mouse(page: Page) -> None:
    # Catches a script that a browser refuses, or that fails: the page would look alike, and do nothing.
    assert rewards_of(page) == ["1", "0", "3", "2"]
    page.get_by_role("button", name="reward").click()
    assert rewards_of(page) == ["3", "2", "1", "0"]
    page.get_by_role("button", name="reward").click()
    assert rewards_of(page) == ["0", "1", "2", "3"]
    page.get_by_label("reward from").fill("1")
    page.get_by_label("to", exact=True).fill("2")
    assert rewards_of(page) == ["1", "2"]
    assert page.locator("#count").inner_text() == "2 of 4"
    assert page.locator("section:visible").count() == 2, "what the others said is still there"


def test_by_keyboard_alone(page: Page) -> None:
    # Catches a table that needs a mouse: headers that take no focus, a filter that reloads the page on Enter.
    for typed in ("1", "", "Four"):
        page.keyboard.press("Tab")
        page.keyboard.type(typed)
        page.keyboard.press("Enter")
    assert rewards_of(page) == ["1", "2"]
    for _ in range(3):
        page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    assert rewards_of(page) == ["2", "1"]
    page.keyboard.press("Space")
    assert rewards_of(page) == ["1", "2"]
    for _ in range(2):
        page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.wait_for_url("**#g0s0")  # a row leads to what its sample said


def test_on_a_telephone(page: Page) -> None:
    # Catches answers that one sees by scrolling the table alone.
    assert wider_than_window(page) == 0
    place = page.locator("#samples tbody td:last-child").first.bounding_box()
    assert place is not None
    assert place["x"] + place["width"] <= 420
