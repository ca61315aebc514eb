"""Output of `cookhouse runs list`, `show` and `compare`."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.text import Text

from cookhouse.cli.summary import print_findings, print_sweep
from cookhouse.cli.tables import fitted, shortened, side_by_side, when
from cookhouse.diagnosis import Finding
from cookhouse.errors import InputError, printable
from cookhouse.report import Comparison, RunRecord, checkpoint_text, compare, setting_text, telling
from cookhouse.runs import RunStatus, find_runs, read_history, read_record, read_result
from cookhouse.runs.history.facts import duration
from cookhouse.runs.listing.overview import RunOverview
from cookhouse.runs.names import REPORT_FILE, ROLLOUTS_FOLDER
from cookhouse.runs.reading.settings import has_origins, recorded_settings
from cookhouse.sweeps.record import is_sweep, read_sweep
from cookhouse.telemetry import find_metric, last_step_of, make_console, say, say_command, say_fact

_LABEL_CELLS = 12
_SHOWN = 4
"""Checkpoints at most: `cookhouse checkpoints list` has them all."""


def print_run(path: Path, name: str, resume: str) -> None:
    """Everything that a person asks of one run."""
    console, record, history = make_console(), read_record(path), read_history(path)
    say(console, printable(f"{name}: {record.config.get('recipe', 'a run')} of {_model(record)}"), style="bold")
    if record.headline is not None:
        say(console, printable(f"{record.headline.text} {record.place}"))
    facts = {**record.facts, **_best(record), **_code(record), "folder": str(path)}
    for label, fact in facts.items():
        say_fact(console, f"{label:<{_LABEL_CELLS}}", printable(str(fact)))
    for warning in record.warnings:
        say_fact(console, f"{'warning':<{_LABEL_CELLS}}", printable(warning))
    print_findings(console, record.findings)
    for gap in record.gaps:
        say_fact(console, f"{'note':<{_LABEL_CELLS}}", printable(gap))
    if is_sweep(path):
        print_sweep(console, read_sweep(path))
    else:
        _print_parts(console, path)
    _print_settings(console, record)
    _print_figures(console, path, record)
    _print_checkpoints(console, record)
    say(console, "")
    report = path / REPORT_FILE
    say(console, f"{'report':<{_LABEL_CELLS}} {report if report.exists() else f'none yet: cookhouse report {path}'}")
    if record.rollouts:
        say(console, f"{'rollouts':<{_LABEL_CELLS}} {len(record.rollouts):,} pages in {path / ROLLOUTS_FOLDER}/")
    if history.status in (RunStatus.INTERRUPTED, RunStatus.FAILED):
        say_command(console, f"{'to continue':<{_LABEL_CELLS}}", resume)


def print_comparison(comparison: Comparison, page: Path) -> None:
    """The settings that differ, the most telling metrics, and where the page is."""
    console = make_console()
    width = console.width if console.is_terminal else None
    if comparison.settings:
        rows = [[setting.name, *map(setting_text, setting.values)] for setting in comparison.settings]
        _print_lines(console, side_by_side(["setting", *comparison.names], rows, width))
    else:
        say(console, "no setting differs")
    if comparison.num_unshared:
        say(console, f"({comparison.num_unshared} more settings are of some of the recipes only)", style="dim")
    every = telling(comparison.metrics)
    shown = [each for each in every if len(set(each.texts)) > 1]
    if shown:
        rows = [
            [each.name, *(text + " *" * is_best for text, is_best in zip(each.texts, each.best, strict=True))]
            for each in shown
        ]
        say(console, "")
        _print_lines(console, side_by_side(["last value (* best)", *comparison.names], rows, width))
        for note in dict.fromkeys(each.note for each in shown if each.note):
            names = ", ".join(each.name for each in shown if each.note == note)
            say(console, printable(f"no * for {names}: {note}"), style="dim")
    if len(every) > len(shown):
        more = "more " if shown else ""
        say(console, f"({len(every) - len(shown)} {more}metrics are equal in all of them)", style="dim")
    for name, record in zip(comparison.names, comparison.records, strict=True):
        for gap in record.gaps:
            say(console, printable(f"note: {name}: {gap}"), style="dim")
    say(console, f"\ncurves       {page}")


def _print_lines(console: Console, lines: Sequence[str]) -> None:
    for line in lines:
        say(console, line)


def _model(record: RunRecord) -> str:
    return str(record.config.get("config", {}).get("model_name", "an unknown model"))


def _best(record: RunRecord) -> Mapping[str, str]:
    return (
        {} if record.best is None else {"best": f"{record.best.name}: {checkpoint_text(record.best, record.declared)}"}
    )


def _code(record: RunRecord) -> Mapping[str, str]:
    told = {"cookhouse": record.config.get("version"), "revision": record.config.get("revision")}
    return {name: str(value) for name, value in told.items() if value is not None}


def _print_parts(console: Console, path: Path) -> None:
    for part in find_runs(path):
        say(console, printable(f"{'consists of':<{_LABEL_CELLS}} {part.name} ({part.history.status})"))


def _print_settings(console: Console, record: RunRecord) -> None:
    """Print the settings that somebody set, as far as the run has recorded it; else all."""
    every = [each for each in recorded_settings(record.config) if each.name != "runs"]  # those stand in the table
    if not every:
        return
    shown, title = every, "all settings; which are defaults is unknown, as the run did not record it"
    if has_origins(every):
        shown = [each for each in every if each.is_set]
        title = "settings that are not the defaults" if shown else "all settings are the defaults"
    say(console, f"\n{title}")
    for each in shown:
        say(console, printable(f"  {each.name} = {each.text}"))


def _print_figures(console: Console, path: Path, record: RunRecord) -> None:
    """Before and after, of a run that came to its end; of another, the first and the last value of what is held out."""
    try:
        result = read_result(path)
    except InputError as error:
        say(console, printable(f"\nnote: {error}"))
        return
    if result is not None:
        summary = result.summary
        say(console, f"\nresult after {summary.num_steps:,} of {summary.total_steps:,} steps")
        for figure in summary.figures:
            if (figure.before, figure.after) != (None, None):
                metric = find_metric(figure.name, record.declared)
                ends = (metric.text(value) for value in (figure.before, figure.after))
                say(console, printable(f"  {figure.label}: {' → '.join(ends)}"))
        return
    if record.metrics:
        say(console, f"\nso far, to step {max(map(last_step_of, record.metrics)):,}")
        alone = compare({"": record})
        for each in telling(alone.metrics):
            points = [point.value for curve in alone.curves[each.name] if curve is not None for point in curve.points]
            before = points[0] if len(points) > 1 else None
            say(console, printable(f"  {each.name}: {each.metric.change_text(before, points[-1])}"))


def _print_checkpoints(console: Console, record: RunRecord) -> None:
    if not record.checkpoints:
        return
    say(
        console,
        f"\ncheckpoints{'' if len(record.checkpoints) <= _SHOWN else f', the last of {len(record.checkpoints)}'}",
    )
    for point in record.checkpoints[-_SHOWN:]:
        for kind, place in (("state", point.state_path), ("sampler", point.sampler_path)):
            if place is not None:
                say(console, printable(f"  step {point.step:<6} {kind:<8} {place}"))


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


def print_runs(overviews: Sequence[RunOverview], findings: Mapping[str, Sequence[Finding]]) -> None:
    """Print a line for each run, in their order, and below it its error or its gravest finding.

    `findings` are by the names of runs. A terminal without room for all columns gets a line on those left out.
    """
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
            _print_below(console, overview.error, width)
        elif findings[overview.name]:
            _print_below(console, _diagnosis(findings[overview.name]), width)
    if left_out:
        say(
            console, f"no room for {', '.join(left_out)}: a wider terminal, `runs show` or --json has more", style="dim"
        )


def _print_below(console: Console, text: str, width: int | None) -> None:
    say(console, printable(f"    {text if width is None else shortened(text, width - 4)}"), style="dim")


def _diagnosis(findings: Sequence[Finding]) -> str:
    more = f" (and {len(findings) - 1} more: `runs show`)" if len(findings) > 1 else ""
    return f"diagnosis: {findings[0].title}{more}"


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
