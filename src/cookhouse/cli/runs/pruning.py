"""`cookhouse runs prune`: deletes the runs that are old, large or failed, and says first what it would free."""

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cookhouse.cli.models.commands import Registry
from cookhouse.cli.runs.deletion import Force, confirm, has_user, num_bytes, size_text
from cookhouse.cli.runs.names import Under
from cookhouse.cli.tables import fitted, when
from cookhouse.errors import InputError, printable
from cookhouse.runs.history.launches import RunStatus
from cookhouse.runs.listing.find import FoundRun, find_runs
from cookhouse.runs.names import RUNS_FOLDER

if TYPE_CHECKING:
    from cookhouse.registry import ModelRegistry

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_BYTES = {
    "": 1,
    **{f"{unit}{end}": 10**power for unit, power in zip("kmgt", (3, 6, 9, 12), strict=True) for end in ("", "b")},
}
_HEADER = ("#", "name", "state", "ended", "size")


@dataclass(frozen=True, kw_only=True)
class _SizedRun:
    run: FoundRun
    num_bytes: int

    @property
    def row(self) -> tuple[str, ...]:
        ended = when(self.run.history.last_at.timestamp())
        return self.run.number, self.run.name, self.run.history.status, ended, size_text(self.num_bytes)


def prune(
    older_than: Annotated[
        str | None,
        typer.Option(metavar="AGE", help="Only runs that did nothing for so long: 12h, 30d, 8w.", show_default=False),
    ] = None,
    larger_than: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="Only runs whose folder is larger: 500M, 1.5G.", show_default=False),
    ] = None,
    state: Annotated[
        list[RunStatus] | None, typer.Option(help="Only runs that stand so; may be repeated.", show_default=False)
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Delete without asking.")] = False,
    force: Force = False,
    under: Under = RUNS_FOLDER,
    registry: Registry = None,
) -> None:
    """Delete old, large or failed runs, with their weights.

    Those of which all that is given is true. Lists them first, with what it would free, and asks; where there is nobody
    to ask, it deletes nothing without --yes. What runs, what is registered, and what runs that stay were started from
    is left alone, and named. A run that consists of others goes as a whole, or stays.
    """
    from cookhouse.registry import open_registry
    from cookhouse.runs import delete_run, needs_of
    from cookhouse.telemetry import make_console, say

    seconds = None if older_than is None else _amount(older_than, _SECONDS, "--older-than", "12h, 30d or 8w")
    least = None if larger_than is None else _amount(larger_than, _BYTES, "--larger-than", "500M or 1.5G")
    if seconds is None and least is None and not state:
        raise InputError("say which runs: --older-than 30d, --larger-than 1G, --state failed, or several of these")
    if RunStatus.RUNNING in (state or ()):
        raise InputError("a running run is never deleted; stop it first (Ctrl-C saves), and name another --state")
    chosen = [run for run in find_runs(under) if run.parent is None and _is_meant(run, seconds, state)]
    sized = [_SizedRun(run=run, num_bytes=num_bytes(run.path)) for run in chosen]
    left: dict[Path, str] = {}
    models = open_registry(registry, os.environ)
    going = list(_deletable([each for each in sized if least is None or each.num_bytes > least], left))
    if not force:
        going = _unneeded(going, under, models, left)
    console = make_console()
    columns = console.width - 2 if console.is_terminal else None  # where it asks, lines are indented
    for reason in left.values():
        say(console, printable(f"left alone: {reason}"))
    if not going:
        say(console, f"no run in {under}/ is to be deleted")
        return
    needs = needs_of([each.run.path for each in going], under, models).values()
    lines = [*(printable(need) for some in needs for need in some), *_table(going, columns)]
    runs, free = f"{len(going):,} run{'s' * (len(going) != 1)}", size_text(sum(each.num_bytes for each in going))
    if not yes and has_user():
        confirm([*lines, f"{runs}, {free}"])
    else:
        say(console, "\n".join(lines))
        if not yes:
            say(console, f"would delete {runs} and free {free}; nothing was deleted: pass --yes to do it")
            return
    for each in going:
        delete_run(each.run.path)
    say(console, f"deleted {runs}, freed {free}")


def _table(going: Sequence[_SizedRun], columns: int | None) -> list[str]:
    return fitted(_HEADER, [each.row for each in going], columns, cut="name", spare=("ended", "state"))[0]


def _is_meant(run: FoundRun, seconds: float | None, states: Sequence[RunStatus] | None) -> bool:
    is_old = seconds is None or run.history.last_at < datetime.now(UTC) - timedelta(seconds=seconds)
    return is_old and (not states or run.history.status in states)


def _deletable(sized: Sequence[_SizedRun], left: dict[Path, str]) -> Iterator[_SizedRun]:
    """Runs that may go; the reasons why others may not are added to `left`."""
    from cookhouse.runs import check_deletable

    for each in sized:
        try:
            check_deletable(each.run.path)
        except InputError as error:
            left[each.run.path] = str(error)
        else:
            yield each


def _unneeded(
    going: Sequence[_SizedRun], under: Path, registry: "ModelRegistry", left: dict[Path, str]
) -> list[_SizedRun]:
    """Runs that no run needs that stays. One that stays may need others that were to go."""
    from cookhouse.runs import needs_of

    needs = needs_of([each.run.path for each in going], under, registry)
    needed = {path: "; ".join(some) for path, some in needs.items() if some}
    if not needed:
        return list(going)
    left |= needed
    return _unneeded([each for each in going if each.run.path not in needed], under, registry, left)


def _amount(text: str, units: dict[str, int], option: str, allowed: str) -> float:
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([a-z]*)", text.strip().lower())
    unit = None if found is None else units.get(found[2])
    if found is None or unit is None:
        raise InputError(f"{option} {text!r} is no amount; give one such as {allowed}")
    return float(found[1]) * unit
