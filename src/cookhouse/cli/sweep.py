"""`cookhouse sweep RECIPE`: a recipe with several settings, and the runs compared."""

import shlex
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from cookhouse.adapters import Adapters, make_adapters
from cookhouse.cli.options import layers_of
from cookhouse.cli.run import finish, ports_of
from cookhouse.errors import printable
from cookhouse.recipes import read_config_file
from cookhouse.recipes.experiment import Experiment, is_experiment_file, read_experiment, write_experiment
from cookhouse.recipes.run_sweep import NAME, extended, plan_sweep, read_grid, sweep_settings


def sweep(
    recipe: Annotated[
        str,
        typer.Argument(metavar="RECIPE|FILE", help="The recipe; or a YAML or JSON file that holds an experiment."),
    ],
    settings: Annotated[
        list[str] | None,
        typer.Argument(metavar="KEY=VALUE", help="Settings; one with several values, separated by commas, is swept."),
    ] = None,
    config: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", help="Settings of all runs, from a YAML, TOML or JSON file."),
    ] = None,
    jobs: Annotated[
        int | None,
        typer.Option("--jobs", "-j", min=1, help="Runs at a time, on one engine or service. [default: 1]"),
    ] = None,
    min_steps: Annotated[
        int | None,
        typer.Option(
            min=1, help="Successive halving: evaluate every run after this many steps and promote only the best."
        ),
    ] = None,
    reduction_factor: Annotated[
        int | None,
        typer.Option(min=2, help="Promote the best 1/N at each rung and multiply the steps by N. [default: 3]"),
    ] = None,
    max_steps: Annotated[
        int | None, typer.Option(min=1, help="Steps of a whole run; the same as max_steps=N.", metavar="N")
    ] = None,
    metric: Annotated[
        str | None,
        typer.Option(
            help="Compare runs by it; default: the most telling one that all of them have; with --min-steps, the "
            "held-out loss."
        ),
    ] = None,
    direction: Annotated[
        Literal["less", "more"] | None,
        typer.Option(help="Whether lower or higher is better; default: as the metric is declared."),
    ] = None,
    adapters: Annotated[
        str | None, typer.Option(metavar="NAME", help="local, hosted, noop, or your own, as of cookhouse run.")
    ] = None,
    save: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Check, and write the experiment to a new YAML or JSON file; train nothing."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check and plan each run and its data; train nothing.")
    ] = False,
) -> None:
    """Run a recipe with several settings, one after another or several at a time, and compare the runs.

    There is a run for each combination. An experiment is a document with the same settings, and with single runs.
    --min-steps stops poor runs early:

    \b
      cookhouse sweep supervised learning_rate=1e-4,3e-4 lora_rank=8,32
      cookhouse sweep rates.yaml lora_rank=8,32
      cookhouse sweep rates.yaml max_steps=128 --min-steps 8

    A setting that is a list itself, such as evaluators or columns, is one value: evaluators=a,b. Several of them stand
    in a JSON list: evaluators='["a,b", "c"]'. log_path names the folder of the
    sweep, and registered_model_name registers the best run alone. Runs that fail leave the others alone. Resume an
    interrupted sweep with cookhouse runs resume.
    """  # noqa: D301  \b keeps lines as they are
    layers = layers_of(settings or (), (), {})
    shared = {name: value for file in config or () for name, value in read_config_file(file).items()}
    start = read_experiment(recipe) if is_experiment_file(recipe) else recipe
    single, grid = read_grid(start if isinstance(start, str) else start.recipe, layers["key=value"])
    how: dict[str, Any] = {"jobs": jobs, "metric": metric, "direction": direction}
    how |= {"min_steps": min_steps, "reduction_factor": reduction_factor}
    if max_steps is not None:
        single["max_steps"] = str(max_steps)
    experiment = extended(start, {**shared, **single}, grid, **how)
    given = None if adapters is None else make_adapters(adapters)
    if save is not None:
        sweep_settings(experiment, given)
        write_experiment(experiment, save)
        typer.echo(f"the experiment is in {save}; run it with: cookhouse sweep {shlex.quote(str(save))}")
        return
    if dry_run:
        _print_plan(experiment, given)
        return
    finish(NAME, sweep_settings(experiment, given), ports_of(given))


def _print_plan(experiment: Experiment, given: Adapters | None) -> None:
    """Print what a sweep would do: what all runs have in common, then each run with what is its own."""
    from cookhouse.sweeps.halving import rungs_of
    from cookhouse.telemetry import Telemetry, make_console, say, say_fact

    with Telemetry(() if given is None else given.sinks or ()):
        whole, plans = plan_sweep(experiment, given)
    console = make_console()
    what = f"{len(plans)} runs of {experiment.recipe} in {whole.folder}"
    if experiment.min_steps is not None:
        *rungs, last = rungs_of(experiment.min_steps, experiment.reduction_factor, whole.config["max_steps"])
        what += f", compared after steps {', '.join(map(str, rungs))} of {last}"
    say(console, f"{what}; nothing was trained, no request was made")
    facts = [[*plan.facts.items(), *(("note", note) for note in plan.notes)] for plan in plans.values()]
    shared = [fact for fact in facts[0] if all(fact in own for own in facts)]
    say(console, "\nplan of every run")
    for label, fact in shared:
        say_fact(console, f"  {label:<16}", printable(fact))
    for (name, settings), own in zip(whole.facts.items(), facts, strict=True):
        say(console, f"\n{printable(name)}\n  {printable(settings)}")
        for label, fact in own:
            if (label, fact) not in shared:
                say_fact(console, f"  {label:<16}", printable(fact))
