"""`cookhouse report`: a run on one page."""

from pathlib import Path
from typing import Annotated

import typer


def report(folder: Annotated[Path, typer.Argument(help="Folder of a run, finished or not.")]) -> None:
    """Write report.html into the folder of a run: its curves, answers, checkpoints and settings on one page."""
    from cookhouse.runs import write_report

    typer.echo(write_report(folder))
