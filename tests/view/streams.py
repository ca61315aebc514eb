"""Events as a program receives them from a server."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import httpx
from tests.view.conftest import TOKEN
from tests.waiting import PATIENCE_SECONDS


class Event(NamedTuple):
    name: str
    data: Any
    id: str


@contextmanager
def events(address: str, path: str, last_id: str = "") -> Iterator[Iterator[Event]]:
    """The events of a stream, which is closed with the block."""
    headers = {"Authorization": f"Bearer {TOKEN}", **({"Last-Event-ID": last_id} if last_id else {})}
    with httpx.stream("GET", f"{address}{path}", headers=headers, timeout=PATIENCE_SECONDS) as answer:
        assert answer.status_code == 200, answer.read()
        assert answer.headers["content-type"].startswith("text/event-stream")
        yield _parsed(answer.iter_lines())


def next_of(stream: Iterator[Event], name: str) -> Event:
    """The next event of a name; others are passed over."""
    return next(event for event in stream if event.name == name)


def _parsed(lines: Iterator[str]) -> Iterator[Event]:
    fields: dict[str, str] = {}
    for line in lines:
        name, _, value = line.partition(": ")
        if line and name:
            fields[name] = value
        elif not line and "event" in fields:
            yield Event(fields["event"], json.loads(fields["data"]), fields.get("id", ""))
            fields = {}
