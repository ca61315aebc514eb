"""`cookhouse runs delete`: asks, and says what goes."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from cookhouse.cli.models.commands import Registry
from cookhouse.cli.runs.names import Runs, Under
from cookhouse.errors import InputError
from cookhouse.runs.listing.find import find_run, find_runs
from cookhouse.runs.names import RUNS_FOLDER

Force: TypeAlias = Annotated[
    bool, typer.Option("--force", help="Delete weights that are registered or that other runs were started from, too.")
]


def delete(
    runs: Runs,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    force: Force = False,
    under: Under = RUNS_FOLDER,
    registry: Registry = None,
) -> None:
    """Delete runs, with the weights that lie in their folders.

    Nothing outside of their folders is touched: links are removed as links, and weights on another service stay there.
    A running run is refused, and one whose weights are registered or from which others were started.
    """
    from cookhouse.registry import open_registry
    from cookhouse.runs import check_deletable, delete_run, needs_of

    paths = list(dict.fromkeys(find_run(run, under) for run in runs))
    paths = [path for path in paths if not any(path != other and path.is_relative_to(other) for other in paths)]
    for path in paths:
        check_deletable(path)
    needs = [need for some in needs_of(paths, under, open_registry(registry, os.environ)).values() for need in some]
    if needs and not force:
        raise InputError("; ".join(needs) + "; delete these first, or pass --force")
    sizes = {path: f"{size_text(num_bytes(path))}{_parts(path)}" for path in paths}
    if not yes:
        if not has_user():
            raise InputError("there is no terminal to ask on; pass --yes to delete without being asked")
        confirm([*needs, *(f"{path} ({size})" for path, size in sizes.items())])
    for path, size in sizes.items():
        delete_run(path)
        typer.echo(f"deleted {path} ({size})")


def confirm(lines: Sequence[str]) -> None:
    """Ask whether what the lines name may go. Raises `typer.Abort` if not."""
    for line in lines:
        typer.echo(f"  {line}")
    if not typer.confirm(f"delete {'it' if len(lines) == 1 else 'them'}? What is deleted is gone"):
        raise typer.Abort


def has_user() -> bool:
    """True if there is somebody to ask."""
    return sys.stdin.isatty() and sys.stdout.isatty()


def _parts(path: Path) -> str:
    count = len(find_runs(path))
    return f", with {count} runs in it" if count else ""


def num_bytes(folder: Path) -> int:
    """Of all files in a folder; links are not followed."""
    return sum(Path(where, name).lstat().st_size for where, _, files in os.walk(folder) for name in files)


def size_text(num_bytes: int) -> str:
    """A size on disk, for people."""
    return f"{num_bytes / 1e9:,.1f} GB" if num_bytes >= 1e9 else f"{num_bytes / 1e6:,.1f} MB"
