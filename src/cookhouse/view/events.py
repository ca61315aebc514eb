"""Server-sent events of what changes while somebody looks."""

from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from starlette.concurrency import run_in_threadpool

from cookhouse.errors import UnknownNameError
from cookhouse.runs.listing.find import FoundRun
from cookhouse.runs.names import LOCK_FILE, METRICS_FILE
from cookhouse.runs.reading.metrics import MetricsRows, read_rows
from cookhouse.telemetry import strict_json
from cookhouse.view.listing import Line, Listed, Listing, Wanted, line_of
from cookhouse.view.place import Place, Signature, signature_of
from cookhouse.view.position import Position
from cookhouse.view.watching import Watcher

BEAT: Final = b": still here\n\n"
"""Keeps a connection from being taken for dead, and shows one that is."""
DELETED: Final = "deleted"
"""The status of a run that is no longer there."""
_MAX_NAMES: Final = 1000
"""Of files and folders of a run that are looked at."""
_CLOCK_SLACK_NS: Final = 2_000_000_000
"""File systems round the times of files."""


def event(name: str, data: Any, position: object = "") -> bytes:
    """One event as it goes over the wire; `position` is its id."""
    told = f"id: {position}\n" if position else ""
    return f"{told}event: {name}\ndata: {strict_json(data)}\n\n".encode()


@dataclass(frozen=True, kw_only=True)
class _Signs:
    """Signs that a run has something new to show."""

    state: Line
    files: Mapping[str, Signature]
    """By name in its folder."""


async def run_events(watcher: Watcher, place: Place, run: FoundRun, position: Position) -> AsyncIterator[bytes]:
    """`state` at the start and when it changes, `files` that have changed, and `rows` of metrics from a position on,
    after `reset` where these are no longer what was read.
    """
    folder = run.path
    seen: _Signs | None = None
    async with watcher.looking(("run", run.name), partial(_signs, place, run.name)) as look:
        async for signs in look.values():
            if signs is None:
                yield BEAT
                continue
            if seen is None or signs.state != seen.state:
                yield event("state", signs.state)
            changed = _changed(signs, seen, position)
            if changed:
                yield event("files", {"changed": changed})
            if seen is None or METRICS_FILE in changed:
                async for told, reached in _rows(folder, position):
                    position = reached
                    yield told
            seen = signs


async def _rows(folder: Path, position: Position) -> AsyncIterator[tuple[bytes, Position]]:
    """Events of the rows from a position on, each with where to go on."""
    if not await run_in_threadpool(position.holds, folder):
        position = replace(position, offset=0)
        yield event("reset", {}, position), position
    while True:
        found, position = await run_in_threadpool(_read, folder, position.offset)
        if found.rows:
            yield event("rows", {"rows": found.rows, "to": found.end}, position), position
        if found.end >= found.size or not (found.rows or found.num_broken):
            return


def _read(folder: Path, offset: int) -> tuple[MetricsRows, Position]:
    found = read_rows(folder / METRICS_FILE, offset)
    return found, Position.of(folder, found.end)


def _changed(signs: _Signs, seen: _Signs | None, position: Position) -> list[str]:
    """Names in the folder that have changed since the last look, or since the time of a position."""
    if seen is not None:
        names = signs.files.keys() | seen.files.keys()
        return sorted(name for name in names if signs.files.get(name) != seen.files.get(name))
    since = position.time_ns - _CLOCK_SLACK_NS
    return sorted(name for name, signature in signs.files.items() if signature[2] >= since)


def _signs(place: Place, name: str) -> _Signs:
    try:
        run = place.run(name)
        state = line_of(place.overview(run))
        names = sorted(path.name for path in run.path.iterdir() if path.name != LOCK_FILE)[:_MAX_NAMES]
        found = {each: signature_of(run.path / each) for each in names}
    except (UnknownNameError, OSError):
        return _Signs(state={"name": name, "status": DELETED}, files={})
    return _Signs(state=state, files={each: signature for each, signature in found.items() if signature is not None})


async def list_events(
    watcher: Watcher, listing: Listing, wanted: Wanted, cut: Callable[[list[Line]], list[Line]], position: str
) -> AsyncIterator[bytes]:
    """At the start and at each change: `run`, each line of a page that is not as it was at a position; `gone`, the name
    of each run that was deleted since; and then `runs`, the names of the page in their order. `cut` is the part of the
    wanted lines that the page shows.
    """
    version = _version(listing, position)
    names: list[str] | None = None
    async with watcher.looking("runs", listing.look) as look:
        async for listed in look.values():
            if listed is None:
                yield BEAT
                continue
            selected = wanted.select(listed.lines)
            page = cut(selected)
            before = set() if names is None else set(names)
            for line in page:
                name = line["name"]
                if listed.changed[name] > version or (names is not None and name not in before):
                    yield event("run", line)
            for name, at in listed.gone.items():
                if version and at > version:
                    yield event("gone", {"name": name})
            names, version = [line["name"] for line in page], listed.version
            counts = {"num_selected": len(selected), "num_runs": len(listed.lines)}
            yield event("runs", {"names": names, **counts}, position_of(listing, listed))


def position_of(listing: Listing, listed: Listed) -> str:
    """The id from which events of the list go on for who has seen its lines."""
    return f"{listing.epoch}-{listed.version}"


def _version(listing: Listing, position: str) -> int:
    """The version that a position names; 0, before all, if it is another server's."""
    epoch, _, version = position.partition("-")
    is_ours = epoch == listing.epoch and version.isascii() and version.isdecimal() and len(version) <= 18
    return int(version) if is_ours else 0
