"""`cookhouse runs`: what has been run, side by side, gone on with, and deleted."""

import json
import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cookhouse.cli.help import ListsByDefault
from cookhouse.cli.options import layers_of
from cookhouse.cli.run import program, run_recipe
from cookhouse.cli.runs.deletion import delete
from cookhouse.cli.runs.names import Run, Runs, Under
from cookhouse.cli.runs.pruning import prune
from cookhouse.errors import InputError
from cookhouse.runs.history.launches import RunStatus, read_history
from cookhouse.runs.listing.find import FoundRun, find_run, find_runs, is_run
from cookhouse.runs.names import RUN_FILE, RUNS_FOLDER

if TYPE_CHECKING:
    from cookhouse.diagnosis import Finding
    from cookhouse.runs import RunOverview

_SHOWN = 50


runs_app = typer.Typer(
    cls=ListsByDefault,
    help="""List, show, compare, resume and delete runs.

A run is named by its name (that of its folder), by the beginning of a name that no other run has, by its number in the
list (3 or #3), or by the path of its folder; so it is wherever a run is asked for, as in

\b
  cookhouse sample 3 "a question"
  cookhouse run supervised load_checkpoint_path=3""",
    rich_markup_mode=None,
)


@runs_app.command("list")
def list_(
    recipe: Annotated[str | None, typer.Option(help="Only runs of this recipe.")] = None,
    state: Annotated[RunStatus | None, typer.Option(help="Only runs in this state.")] = None,
    limit: Annotated[
        int | None, typer.Option(min=0, help="Newest runs at most; 0: all.", show_default=f"{_SHOWN}, and all as JSON")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="As a JSON list, for programs.")] = False,
    under: Under = RUNS_FOLDER,
) -> None:
    """List runs, the newest first, the parts of a pipeline below it.

    The metric is the headline of the run: held-out where something is held out, at the first and the last step. Below a
    run stands the gravest finding of its diagnosis. A running run holds a lock that its process releases: a run whose
    process was killed is interrupted.
    """
    found = find_runs(under)
    if not found and not as_json:
        raise InputError(
            f"there are no runs in {under}/; start one (cookhouse run supervised), or name another folder with --under"
        )
    kept = _with_families([run for run in found if _is_wanted(run, recipe, state)], found)
    tops = [run.name for run in kept if run.parent is None]
    most = limit if limit is not None else (0 if as_json else _SHOWN)
    newest = set(tops[-most:] if most else tops)
    parents = {run.name: run.parent for run in kept}
    shown = [run for run in kept if _top(run.name, parents) in newest]
    overviews, findings = _overviews(shown), _findings(shown)
    if as_json:
        rows = [
            {**overview.as_json(), "findings": [finding.as_json() for finding in findings[overview.name]]}
            for overview in overviews
        ]
        typer.echo(json.dumps(rows, indent=1))
        return
    if not overviews:
        recipes = ", ".join(sorted({str(run.record.get("recipe", "?")) for run in found}))
        typer.echo(f"none of the {len(found)} runs in {under}/ matches; their recipes are {recipes}", err=True)
        return
    from cookhouse.cli.runs.summary import print_runs

    print_runs(overviews, findings)
    if len(newest) < len(tops):
        typer.echo(f"{len(tops) - len(newest)} older ones are left out; --limit 0 lists all", err=True)


@runs_app.command()
def show(run: Run, under: Under = RUNS_FOLDER) -> None:
    """Show one run, and the command that goes on.

    When and where it ran, which settings are not the defaults, what came of it, what it saved and where that is.
    """
    from cookhouse.cli.runs.summary import print_run

    path = find_run(run, under)
    name = _name_of(path, under)
    again = name if under == RUNS_FOLDER else str(path)  # a number may mean another run by then
    print_run(path, name, f"{program()} runs resume {shlex.quote(again)}")


@runs_app.command()
def compare(
    runs: Runs,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Page to write.", show_default="compare-A-B.html in DIR"),
    ] = None,
    under: Under = RUNS_FOLDER,
) -> None:
    """Show runs side by side, and write a page of their curves.

    The settings that differ, and no other; and the last value of each metric, * the best. The page has the curves over
    each other. Runs of different recipes are compared in what they share.
    """
    paths = {_name_of(path, under): path for path in (find_run(run, under) for run in runs)}
    if len(runs) < 2 or len(paths) < len(runs):
        raise InputError(f"name two different runs at least, as in: {program()} runs compare 1 2")
    if output is not None and output.exists() and output.suffix != ".html":
        raise InputError(f"{output} exists, and is no page; name a file that ends in .html")
    from cookhouse.cli.runs.summary import print_comparison
    from cookhouse.report import compare as compare_records
    from cookhouse.runs import read_record, write_comparison

    compared = compare_records({name: read_record(path) for name, path in paths.items()})
    page = output or _page_path(list(paths), under)
    write_comparison(compared, page)
    print_comparison(compared, page)


@runs_app.command()
def resume(
    run: Run,
    settings: Annotated[
        list[str] | None,
        typer.Argument(metavar="KEY=VALUE", help="Settings that do not change what is trained, as in save_every=5."),
    ] = None,
    under: Under = RUNS_FOLDER,
) -> None:
    """Go on with a run that was interrupted or failed.

    It goes on after its last checkpoint, and is started as it was: with the same recipe and adapters, yours too, in the
    folder that it was started in.
    """
    path = find_run(run, under)
    history = read_history(path)
    if history.is_running:
        process = history.launches[-1].process_id
        raise InputError(f"{path} is running, in process {process}; there is nothing to resume until it ends")
    if history.status is RunStatus.FINISHED:
        raise InputError(
            f"{path} has finished, and nothing of it is left to do; to train on from its weights: "
            f"{program()} run RECIPE load_checkpoint_path={shlex.quote(str(path))}"
        )
    if is_run(path.resolve().parent):
        parent = path.resolve().parent
        raise InputError(f"{path} is a part of the run in {parent}; resume that one, which goes on in this")
    last = history.launches[-1]
    if last.recipe is None:
        raise InputError(
            f"{path / RUN_FILE} does not tell what was run; "
            f"go on with {program()} run RECIPE log_path={shlex.quote(str(path))} behavior_if_log_dir_exists=resume"
        )
    where = {"log_path": str(path), "behavior_if_log_dir_exists": "resume"}
    if last.folder is not None and Path(last.folder) != Path.cwd() and Path(last.folder).is_dir():
        typer.echo(f"going on in {last.folder}, where it was started", err=True)
        sys.argv[0] = str(Path(sys.argv[0]).absolute())
        where["log_path"] = str(path.resolve())
        os.chdir(last.folder)
    layers = layers_of(settings or (), (), where)
    run_recipe(last.recipe, layers, dry_run=False, adapters=last.adapters)


runs_app.command()(delete)
runs_app.command()(prune)


def _is_wanted(run: FoundRun, recipe: str | None, state: RunStatus | None) -> bool:
    recipes = (run.record.get("recipe"), run.history.launches[-1].recipe)
    return (recipe is None or recipe.removeprefix(":") in recipes) and state in (None, run.history.status)


def _with_families(kept: Sequence[FoundRun], found: Sequence[FoundRun]) -> list[FoundRun]:
    """Runs, those that they are parts of, and their own parts."""
    names = {run.name for run in kept}
    parents = {parent.name for parent in found if any(run.name.startswith(f"{parent.name}/") for run in kept)}
    return [run for run in found if run.name in names | parents or run.parent in names]


def _top(name: str, parents: Mapping[str, str | None]) -> str:
    """The run that is a part of none, of which this one is a part, or which it is."""
    parent = parents[name]
    return name if parent is None else _top(parent, parents)


def _overviews(runs: Sequence[FoundRun]) -> "list[RunOverview]":
    from cookhouse.runs.listing.overview import overviews_of

    return overviews_of(runs)


def _findings(runs: Sequence[FoundRun]) -> "dict[str, list[Finding]]":
    """Findings by the names of runs, from all of their metrics."""
    from cookhouse.runs import read_findings

    return {run.name: read_findings(run.path, run.record.get("config", {}), run.history) for run in runs}


def _name_of(path: Path, under: Path) -> str:
    """As the list has it; of a run in another folder, its path."""
    is_below = path.is_relative_to(under) and path != under
    return str(path.relative_to(under)) if is_below else str(path)


def _page_path(names: Sequence[str], under: Path) -> Path:
    plain = "-".join(name.strip("/.").replace("/", "_") for name in names)
    return (under if under.is_dir() else Path()) / f"compare-{plain[:150]}.html"
