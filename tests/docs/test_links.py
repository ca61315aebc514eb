"""Links of the pages that are not built lead somewhere; those of docs/ are checked by Sphinx."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = ("README.md", "CONTRIBUTING.md", "bench/README.md")


def slug(heading: str) -> str:
    """The anchor of a heading, as forges make it."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    links = [link for link in re.findall(r"\]\(([^)\s]+)\)", text) if "://" not in link]
    broken = []
    for link in links:
        path, _, anchor = link.partition("#")
        target = (ROOT / page).parent / path if path else ROOT / page
        linked = target.read_text("utf-8") if target.suffix == ".md" else ""
        headings = re.findall(r"^#+ (.+)$", linked, re.MULTILINE)
        if not target.exists() or (anchor and anchor not in map(slug, headings)):
            broken.append(link)
    assert broken == []


def test_a_page_links_to_files_of_the_repository_that_are_there() -> None:
    # Sphinx does not see what a page only names.
    for page in ROOT.glob("docs/**/*.md"):
        text = page.read_text(encoding="utf-8")
        # `examples/STEP.jsonl` lies in a run directory.
        for named in re.findall(r"`((?:src|examples|bench|scripts)/(?!STEP)[\w/.-]+)`", text):
            assert (ROOT / named).exists(), f"{page.relative_to(ROOT)} names {named}"
