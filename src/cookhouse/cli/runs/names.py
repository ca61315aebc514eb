"""Names of runs on the command line, the same wherever one is asked for."""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from cookhouse.files import is_folder
from cookhouse.runs.names import RUNS_FOLDER

NAMING = "its name or the beginning of it, its number in `cookhouse runs`, or its folder"


def complete_run(incomplete: str) -> Iterable[str]:
    """Names of runs for the shell to offer."""
    from cookhouse.runs.listing.find import run_names

    return [name for name in run_names() if name.startswith(incomplete)]


def run_folder(name: str, place: Path = RUNS_FOLDER) -> Path:
    """The folder that a user means: one that is there, or that of the run of this name. Raises as `find_run`."""
    from cookhouse.runs.listing.find import find_run

    return Path(name) if is_folder(Path(name)) else find_run(name, place)


Run: TypeAlias = Annotated[
    str, typer.Argument(metavar="RUN", help=f"A run: {NAMING}.", autocompletion=complete_run, show_default=False)
]
Runs: TypeAlias = Annotated[
    list[str], typer.Argument(metavar="RUN", help=f"Runs, each by {NAMING}.", autocompletion=complete_run)
]
Under: TypeAlias = Annotated[
    Path, typer.Option("--under", metavar="DIR", help="Folder in which runs are looked for, at any depth.")
]
