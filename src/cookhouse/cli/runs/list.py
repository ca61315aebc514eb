"""The list of runs, as a table."""

from collections.abc import Sequence

from rich.text import Text

from cookhouse.cli.tables import fitted, shortened, when
from cookhouse.runs.history.facts import duration
from cookhouse.runs.history.launches import RunStatus
from cookhouse.runs.listing.overview import RunOverview
from cookhouse.telemetry import make_console, say

_HEADER = ("#", "name", "recipe", "model", "steps", "metric", "time", "started", "state")
_SPARE = ("model", "started", "recipe", "time")
_DEAR = ("metric", "steps")
"""Columns in the order in which they are left out where there is no room."""
_STYLES = {
    RunStatus.RUNNING: "cyan",
    RunStatus.FINISHED: "green",
    RunStatus.INTERRUPTED: "yellow",
    RunStatus.FAILED: "red",
}


def print_runs(overviews: Sequence[RunOverview]) -> None:
    """The runs in their order, a line each; a terminal without room for all columns is told which it lacks."""
    console = make_console()
    width = console.width if console.is_terminal else None
    rows = [_row(overview) for overview in overviews]
    (header, *lines), left_out = fitted(_HEADER, rows, width, cut="name", spare=_SPARE, dear=_DEAR)
    say(console, header, style="dim")
    for overview, line in zip(overviews, lines, strict=True):
        text = Text(line)
        start = line.rindex(overview.status)
        text.stylize(_STYLES[overview.status], start, start + len(overview.status))
        console.print(text, soft_wrap=True)
        if overview.error and overview.status is RunStatus.FAILED:
            told = overview.error if width is None else shortened(overview.error, width - 4)
            say(console, f"    {told}", style="dim")
    if left_out:
        say(
            console, f"no room for {', '.join(left_out)}: a wider terminal, `runs show` or --json has more", style="dim"
        )


def _row(overview: RunOverview) -> Sequence[str]:
    indent = "  " * overview.number.count(".")
    return (
        overview.number,
        indent + overview.name,
        overview.recipe or "-",
        overview.model or "-",
        _steps(overview),
        _outcome(overview),
        duration(overview.seconds),
        when(overview.started_at.timestamp()),
        overview.status + " (synthetic)" * overview.is_synthetic,
    )


def _outcome(overview: RunOverview) -> str:
    if overview.headline is None:
        return "-"
    return ", best ".join(filter(None, (overview.headline.text, overview.best_text)))


def _steps(overview: RunOverview) -> str:
    if overview.steps is None:
        return "-"
    total = "?" if overview.total_steps is None else f"{overview.total_steps:,}"
    return f"{overview.steps:,}/{total}"
