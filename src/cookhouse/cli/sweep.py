"""`cookhouse sweep RECIPE`: a recipe with several settings, and the runs compared."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from cookhouse.cli.options import layers_of
from cookhouse.cli.run import adapters_named, finish, ports_of
from cookhouse.cli.tables import side_by_side
from cookhouse.printable import printable
from cookhouse.recipes import read_config_file
from cookhouse.recipes.sweeping import NAME, combined, plan_sweep, read_configs, read_grid, sweep_settings

if TYPE_CHECKING:
    from rich.console import Console

    from cookhouse.runs import SweepRecord


def sweep(
    recipe: Annotated[str, typer.Argument(help="The recipe; cookhouse recipes lists them.")],
    settings: Annotated[
        list[str] | None,
        typer.Argument(metavar="KEY=VALUE", help="Settings; one with several values, parted by commas, is swept."),
    ] = None,
    configs: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="A YAML or JSON file with a list of settings, one entry for each run."),
    ] = None,
    config: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", help="Settings of all runs, from a YAML, TOML or JSON file."),
    ] = None,
    jobs: Annotated[int, typer.Option("--jobs", "-j", min=1, help="Runs at a time, on one engine or service.")] = 1,
    metric: Annotated[
        str | None, typer.Option(help="Compare runs by it; default: the most telling one that all of them have.")
    ] = None,
    direction: Annotated[
        Literal["less", "more"] | None, typer.Option(help="Which way the metric is better; default: as its name tells.")
    ] = None,
    adapters: Annotated[
        str | None, typer.Option(metavar="NAME", help="local, hosted, noop, or your own, as of cookhouse run.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check and list the runs; train nothing.")] = False,
) -> None:
    """Run a recipe with several settings, one after another or several at a time, and compare the runs.

    There is a run for each combination: cookhouse sweep supervised learning_rate=1e-4,3e-4,1e-3 lora_rank=8,32

    A value that holds commas itself stands in a JSON list: evaluators='["a,b", "c"]'. log_path names the folder of the
    sweep, and registered_model_name registers the best run alone. Runs that fail leave the others alone. A sweep that
    was interrupted is gone on with by cookhouse runs resume.
    """
    layers = layers_of(settings or (), (), {})
    single, grid = read_grid(layers["key=value"])
    shared = {name: value for file in config or () for name, value in read_config_file(file).items()}
    runs = combined({**shared, **single}, grid, [] if configs is None else read_configs(configs))
    given = None if adapters is None else adapters_named(adapters, is_dry=dry_run)
    if dry_run:
        from cookhouse.telemetry import make_console, say

        plan = plan_sweep(recipe, runs, given, jobs=jobs, metric=metric, direction=direction)
        console = make_console()
        say(console, f"{len(plan.facts)} runs of {recipe} in {plan.folder}; nothing was trained, no request was made\n")
        for name, told in plan.facts.items():
            say(console, f"{printable(name)}\n    {printable(told)}")
        return
    made = sweep_settings(recipe, runs, given, jobs=jobs, metric=metric, direction=direction)
    finish(NAME, made, ports_of(given))


def print_sweep(console: "Console", sweep: "SweepRecord") -> None:
    """The runs of a sweep, the best of them, and why others failed."""
    from cookhouse.report import setting_text, value_text
    from cookhouse.telemetry import say
    from cookhouse.workflows import best_text

    table, width = sweep.table, console.width if console.is_terminal else None
    metric = table.metric
    header = ["run", *table.swept, "state", *([] if metric is None else [f"{metric} (* best)"])]
    rows = [
        [
            row.name,
            *(setting_text(value) for value in row.settings.values()),
            row.state,
            *([] if metric is None else [value_text(metric, row.value) + " *" * row.is_best]),
        ]
        for row in table.rows
    ]
    say(console, "")
    for line in side_by_side(header, rows, width):
        say(console, line)
    say(console, f"\nbest         {printable(best_text(sweep))}")
    for name, error in sweep.errors.items():
        say(console, printable(f"failed       {name}: {error}"), style="red")
