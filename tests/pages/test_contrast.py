"""Text can be read: its contrast with what it stands on is at least 4.5 to 1, in both themes, as WCAG 2.2 counts it."""

import re
from itertools import product

import pytest

from cookhouse.pages import STATIC

STYLE = (STATIC / "style.css").read_text()
INKS = (
    "ink",
    "dim",
    "accent",
    "good",
    "bad",
    "note",
    *("one", "two", "three", "four", "five", "six", "seven", "eight"),
)
PAPERS = ("paper", "box", "sunk")
LEAST = 4.5


def colors(block: str) -> dict[str, str]:
    return dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6})", block))


def luminance(color: str) -> float:
    parts = [int(color[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


LIGHT, DARK = (colors(block) for block in re.findall(r":root \{([^}]*--paper[^}]*)\}", STYLE))


@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=["light", "dark"])
def test_text_can_be_read_on_every_paper(theme: dict[str, str]) -> None:
    pairs = [*product(INKS, PAPERS), ("on-accent", "accent")]
    pale = {pair: round(contrast(*(theme[name] for name in pair)), 2) for pair in pairs}
    assert {pair: found for pair, found in pale.items() if found < LEAST} == {}


def test_both_themes_have_the_same_colors() -> None:
    # Catches a color that stays as it is in the dark.
    assert LIGHT.keys() == DARK.keys()
    assert contrast("#000000", "#ffffff") == pytest.approx(21)


def test_colors_are_the_variables_of_the_themes() -> None:
    # Catches a color that neither theme knows, and that nothing here measures.
    rest = re.sub(r":root \{[^}]*\}", "", STYLE)
    assert re.findall(r"#[0-9a-fA-F]{3,8}\b(?![^{]*\{)", rest) == []


def test_who_wants_no_motion_gets_none() -> None:
    asked = re.compile(r"@media \(prefers-reduced-motion: no-preference\) \{[^{}]*\{[^{}]*\} *\}")
    assert "transition" in STYLE
    assert not re.search(r"transition|animation|smooth", asked.sub("", STYLE))
