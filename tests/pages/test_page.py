"""What every template can rely on: values are text, and a page may neither run nor load anything but its own."""

import re

import pytest
from jinja2 import UndefinedError
from tests.pages.reader import Page

from cookhouse.pages import STATIC, document

TEMPLATES = STATIC.parent / "templates"
PARTS = {"base.html", "parts.html", "token_parts.html", "paging.html", "playground_form.html", "log_part.html"}
"""What other templates take from; those of a run begin with its page's name."""


@pytest.mark.parametrize("title", ["a < b", "</title><script>", "\x9b31m\u202e"])
def test_a_value_is_text_without_being_told_so(title: str) -> None:
    page = Page(document("rollouts.html", title=title, groups=[], samples=[]))
    assert page.tags.count("script") == 0
    shown = title.replace("\x9b", "\\x9b").replace("\u202e", "\\u202e")
    assert page.texts.count(shown) == 2


def test_a_page_has_a_policy_that_forbids_everything_but_its_own_style() -> None:
    page = Page(document("rollouts.html", title="t", groups=[], samples=[]))
    assert "default-src 'none'; style-src 'unsafe-inline'" in page.values("content")
    assert "Content-Security-Policy" in page.values("http-equiv")
    assert {"script", "link", "img"} & set(page.tags) == set()


def test_a_value_that_is_missing_is_no_empty_text() -> None:
    with pytest.raises(UndefinedError, match="samples"):
        document("rollouts.html", title="t")


def test_no_template_and_no_script_makes_markup_of_texts() -> None:
    # Catches foreign text that becomes an element of a page.
    for path in TEMPLATES.iterdir():
        assert not re.search(r"\|\s*safe|autoescape|\sstyle=|\son\w+=", path.read_text()), path.name
    for path in STATIC.glob("*.js"):
        assert not re.search(r"[^.]innerHTML =|outerHTML|insertAdjacentHTML|document\.write|eval\(", path.read_text())


def test_a_page_has_one_base() -> None:
    for path in TEMPLATES.glob("*.html"):
        if path.name not in PARTS and not path.name.startswith("run_"):
            assert '{% extends "base.html" %}' in path.read_text()[:200], path.name


def test_nothing_is_asked_of_elsewhere() -> None:
    # Catches a font, a style or a script from the network.
    for path in (*TEMPLATES.iterdir(), *STATIC.iterdir()):
        found = set(re.findall(r"https?://[^\s\"']*|url\([^)]*\)|@import", path.read_text()))
        assert found <= {"http://www.w3.org/2000/svg"}, path.name
