"""`cookhouse report`: a run on one page."""

import typer

from cookhouse.cli.runs.names import Run, run_folder


def report(run: Run) -> None:
    """Write report.html into the folder of a run: its curves, answers, checkpoints and settings on one page."""
    from cookhouse.sweeps.record import write_page

    typer.echo(write_page(run_folder(run)))
