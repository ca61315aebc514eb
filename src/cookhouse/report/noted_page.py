"""The page of what an evaluator of the user's own noted."""

from collections.abc import Sequence

from cookhouse.pages import document
from cookhouse.telemetry import Entry


def noted_page(entries: Sequence[Entry], *, title: str) -> str:
    """One self-contained page; all text is escaped, control characters are spelled out, and no script can run."""
    return document("noted.html", title=title, entries=entries)
