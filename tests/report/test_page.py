"""What every template can rely on: values are text, and a page may neither run nor load anything."""

import re
from pathlib import Path

import pytest
from jinja2 import UndefinedError
from tests.report.reader import Page

import cookhouse.report
import cookhouse.view
from cookhouse.report.page import render

TEMPLATES = Path(cookhouse.report.__file__).parent / "templates"
LIVE_TEMPLATES = Path(cookhouse.view.__file__).parent / "templates"


@pytest.mark.parametrize("title", ["a < b", "</title><script>", "\x9b31m\u202e"])
def test_a_value_is_text_without_being_told_so(title: str) -> None:
    page = Page(render("rollouts.html", title=title, groups=[], samples=[]))
    assert page.tags.count("script") == 0
    shown = title.replace("\x9b", "\\x9b").replace("\u202e", "\\u202e")
    assert page.texts.count(shown) == 2


def test_a_page_has_a_policy_that_forbids_everything_but_its_own_style() -> None:
    page = Page(render("rollouts.html", title="t", groups=[], samples=[]))
    assert "default-src 'none'; style-src 'unsafe-inline'" in page.values("content")
    assert "Content-Security-Policy" in page.values("http-equiv")
    assert {"script", "link", "img"} & set(page.tags) == set()


def test_a_value_that_is_missing_is_no_empty_text() -> None:
    with pytest.raises(UndefinedError, match="samples"):
        render("rollouts.html", title="t")


def test_only_the_charts_that_code_draws_are_markup() -> None:
    # Catches a template that marks foreign text as safe.
    marked = [
        line.strip()
        for path in (*TEMPLATES.iterdir(), *LIVE_TEMPLATES.iterdir())
        for line in path.read_text().splitlines()
        if re.search(r"\|\s*safe|autoescape", line)
    ]
    assert len(marked) == 2
    assert all(line.count("|safe") == line.count(".svg|safe") == 1 for line in marked)


def test_a_page_has_one_base() -> None:
    parts = {TEMPLATES / name for name in ("base.html", "parts.html", "comparison_body.html")}
    for path in {*TEMPLATES.glob("*.html")} - parts:
        assert path.read_text().startswith('{% extends "base.html" %}'), path.name
