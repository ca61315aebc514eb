"""A page as a browser would read it."""

import json
from html.parser import HTMLParser
from typing import Any

NEVER_CLOSED = {"meta", "link", "line", "polyline", "input", "path"}


class Page(HTMLParser):
    """What a browser would make of a page; fails if an element is closed by what it should not be."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.texts: list[str] = []
        self._open: list[str] = []
        self.feed(html)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes.extend(attrs)
        if tag not in NEVER_CLOSED:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes.extend(attrs)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    @property
    def text(self) -> str:
        return "\n".join(self.texts)

    @property
    def charts(self) -> list[Any]:
        """What the page draws, as plain data."""
        return [json.loads(value) for value in self.values("data-chart")]

    def values(self, name: str) -> list[str]:
        return [value or "" for key, value in self.attributes if key == name]
