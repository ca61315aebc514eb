"""Sweeps: one recipe run with several settings, on one service, and the runs compared."""

import itertools
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import chz

from cookhouse.adapters import Adapters, GivenAdapters, given_adapters
from cookhouse.callables.arguments import checked
from cookhouse.errors import InputError
from cookhouse.recipes.aliases import aliases_of, tell_choices, without_aliases
from cookhouse.recipes.config import settle
from cookhouse.recipes.experiment import Experiment, experiment_of_runs, experiment_text
from cookhouse.recipes.pipeline import run_child
from cookhouse.recipes.recipe import Recipe, find_recipe
from cookhouse.recipes.resolved import pinned
from cookhouse.recipes.run_recipe import dry_run, run
from cookhouse.settings import ROWS_FIELDS, RunSettings
from cookhouse.settings.facts import list_settings, named_weights
from cookhouse.sweeps.settings import SweepSettings

if TYPE_CHECKING:
    from cookhouse.registry import Descent
    from cookhouse.runs import RunPlan, RunResult
    from cookhouse.sweeps.state import SweepState
    from cookhouse.telemetry import Record, Telemetry
    from cookhouse.workflows import RunContext, Workflow

NAME = "cookhouse.recipes.run_sweep:RECIPE"
"""The name by which the recipe of sweeps is found."""

MAX_RUNS = 1000
_OF_THE_WHOLE = (
    "artifact_store",
    "base_url",
    "behavior_if_log_dir_exists",
    "log_path",
    "max_minutes",
    "registered_model_name",
    "registry",
    "service_patience_seconds",
)
"""Settings that the runs share, and that are the sweep's own."""

_HOW = ("jobs", "min_steps", "reduction_factor", "metric", "direction")
"""Fields of an experiment that are settings of its sweep by the same name."""

Values = Mapping[str, Any]


@checked
def sweep(
    recipe: str | Experiment,
    settings: Values | None = None,
    *,
    grid: Mapping[str, Iterable[Any]] | None = None,
    configs: Sequence[Values] = (),
    jobs: int | None = None,
    min_steps: int | None = None,
    reduction_factor: int | None = None,
    metric: str | None = None,
    direction: Literal["less", "more"] | None = None,
    adapters: GivenAdapters = None,
) -> "RunResult[SweepState]":
    """Run a recipe once for each choice of settings, and compare the runs.

    Args:
        recipe: its name, `module:NAME` or `file.py:NAME`; or an `Experiment`, to which all that follows is added.
        settings: what all runs have. `log_path` is the folder of the sweep, below which each run has its own;
            `registered_model_name` registers the best run alone.
        grid: values by setting; there is a run for each combination of them.
        configs: settings of further runs, or of those that the grid is combined with.
        jobs: runs at a time, on one engine or service that all of them share; default: one.
        min_steps: successive halving: evaluate every run after this many steps and promote only the best, rung by rung
            up to `max_steps`, which all runs must share.
        reduction_factor: promote the best 1/N at each rung and multiply the steps by N; default: 3.
        metric: by which runs are compared; default: the most telling one that all of them have; with `min_steps`, the
            held-out loss.
        direction: whether lower or higher is better; default: as the metric is declared.
        adapters: as of `run`.

    Of the result, `state.record.table` has a row for each run and the best of them, `state.results` what each handed
    back, and `state.errors` what ended those that failed, which the others do not notice. Ctrl-C stops all runs, and
    `log_path` with `behavior_if_log_dir_exists="resume"` resumes those that have not finished.

    Raises:
        InputError: a setting cannot be used; the run that has it is named, and nothing has run.
        ServiceError: the training service is gone.
    """
    how: dict[str, Any] = {"jobs": jobs, "metric": metric, "direction": direction}
    how |= {"min_steps": min_steps, "reduction_factor": reduction_factor}
    experiment = extended(recipe, settings or {}, grid or {}, configs, **how)
    given = given_adapters(adapters)
    return run(NAME, sweep_settings(experiment, given), adapters=given)


def extended(
    recipe: str | Experiment,
    settings: Values,
    grid: Mapping[str, Iterable[Any]],
    runs: Sequence[Values] = (),
    **how: Any,
) -> Experiment:
    """An experiment, or one of a recipe, with further settings, values and runs; of `how`, what is None stays."""
    start = recipe if isinstance(recipe, Experiment) else Experiment(recipe=recipe)
    halving = {name: how[name] for name in ("min_steps", "reduction_factor") if how.get(name) is not None}
    changes = {
        "version": 2 if halving else start.version,
        "settings": {**start.settings, **settings},
        "grid": {**start.grid, **{name: list(values) for name, values in grid.items()}},
        "runs": [*start.runs, *map(dict, runs)],
        **{name: value for name, value in how.items() if value is not None},
    }
    return start.model_copy(update=changes)


def plan_sweep(experiment: Experiment, adapters: Adapters | None = None) -> "tuple[RunPlan, dict[str, RunPlan]]":
    """Plan of a sweep, and of each of its runs by name, data included. Makes no request and no folder.

    Raises:
        InputError: as `sweep`, or the data of a run cannot be used; the run is named.
    """
    from cookhouse.sweeps.record import part_names

    config = sweep_settings(experiment, adapters)
    whole, plans = dry_run(NAME, config, adapters=adapters), {}
    for name, settings in zip(part_names(config.runs), config.runs, strict=True):
        own = {**settings, "log_path": str(whole.folder / name), "base_url": config.base_url}
        try:
            plans[name] = dry_run(config.recipe, own, adapters=adapters)
        except InputError as error:
            raise InputError(f"run {name} of the sweep: {error}") from error
    return whole, plans


def combined(settings: Values, grid: Mapping[str, Sequence[Any]], configs: Sequence[Values]) -> list[dict[str, Any]]:
    """The settings of each run: every combination of the grid with every one of the configs, the last setting varying
    first. Where both have a setting, a config's value is taken over that of `settings`.

    Raises:
        InputError: a setting of the grid is given in another place too, or has no value; or there is nothing to sweep.
    """
    if not grid and not configs:
        raise InputError("there is nothing to sweep; give a setting several values, as in learning_rate=1e-4,3e-4")
    for name in grid:
        if name in settings or any(name in config for config in configs):
            raise InputError(f"{name} is swept, and has a value as well; give it once")
        if not grid[name]:
            raise InputError(f"{name} is swept over no value; give at least one")
    choices = [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]
    runs = [{**settings, **config, **choice} for config in (configs or [{}]) for choice in choices]
    if len(runs) > MAX_RUNS:
        raise InputError(f"that is {len(runs):,} runs; a sweep has {MAX_RUNS:,} at most")
    return runs


def read_grid(recipe: str, words: Values) -> tuple[dict[str, str], dict[str, list[Any]]]:
    """Texts by setting of a recipe, as of a command line, parted into those of one value and those of several.

    Values are parted at commas. A setting that is a list itself has one value, as for `cookhouse run`; several stand in
    a JSON list: `evaluators=["a,b", "c"]` is two values, `evaluators=a,b` is one.

    Raises:
        InputError: a list is none, or a value is empty.
    """
    config_class = find_recipe(recipe).config_class
    lists, aliases = list_settings(config_class), aliases_of(config_class)
    single: dict[str, str] = {}
    several: dict[str, list[Any]] = {}
    for name, text in words.items():
        if not isinstance(text, str):
            single[name] = text
            continue
        meant = aliases[name].means if name in aliases else (name,)
        values = _values(name, text, is_list=not lists.isdisjoint(meant))
        if len(values) == 1:
            single[name] = values[0]
        else:
            several[name] = values
    return single, several


def sweep_settings(experiment: Experiment, adapters: Adapters | None = None) -> SweepSettings:
    """The settings of a sweep, after those of each run were checked. Raises as `sweep`."""
    from cookhouse.telemetry import is_detail

    chosen = find_recipe(experiment.recipe)
    known = chz.chz_fields(chosen.config_class)
    runs = combined(experiment.settings, experiment.grid, experiment.runs)
    if experiment.metric is not None and is_detail(experiment.metric):
        runs = [{**run, "metrics": "all"} for run in runs]
    tell_choices(chosen.config_class, {name for run in runs for name in run})
    plain = [without_aliases(chosen.config_class, run) for run in runs]
    whole = {name: plain[0][name] for name in _OF_THE_WHOLE if name in plain[0]}
    for name in _OF_THE_WHOLE:
        if any(run.get(name) != whole.get(name) for run in plain):
            raise InputError(f"{name} is of the sweep as a whole, and cannot differ among its runs; give it once")
    if whole.get("registered_model_name") is not None and "registered_model_name" not in known:
        raise InputError(f"recipe {chosen.name} registers no model; leave registered_model_name out")
    given = adapters or Adapters()
    parts = [_checked(chosen, number, run, given) for number, run in enumerate(plain, 1)]
    if (same := _twice(parts)) is not None:
        raise InputError(f"runs {same[0]} and {same[1]} of the sweep have the same settings; leave one of them out")
    if len(parts) < 2:
        raise InputError("there is one run to sweep over; give a setting several values, as in learning_rate=1e-4,3e-4")
    how = {name: getattr(experiment, name) for name in _HOW}
    if experiment.min_steps is not None:
        how["max_steps"] = _shared_max_steps(chosen, experiment.min_steps, parts)
    made = settle(RECIPE, {"given": {**whole, **how}}, given.service).config
    return chz.replace(made, recipe=experiment.recipe, runs=parts, model_name=parts[0]["model_name"])


def _checked(recipe: Recipe[Any], number: int, run: Values, adapters: Adapters) -> dict[str, Any]:
    """The settings of a run, as its config has them, with the model, and without what is of the whole."""
    try:
        for name in ROWS_FIELDS:
            if run.get(name) is not None and not isinstance(run[name], str):
                raise InputError(f"{name} of a sweep names a file or a data set; write the rows to a file")
        # What a folder holds already is a sweep, and no run of the recipe.
        plain = {name: value for name, value in run.items() if name != "behavior_if_log_dir_exists"}
        config = pinned(settle(recipe, {"given": plain}, adapters.service).config, adapters)
        recipe.workflow(config)
    except InputError as error:
        raise InputError(f"run {number} of the sweep: {error}") from error
    # What names weights is kept also where nobody set it: the service of the sweep has to know.
    own = dict.fromkeys(["model_name", *(named.setting for named in named_weights(config)), *run])
    return {name: getattr(config, name) for name in own if name not in _OF_THE_WHOLE}


def _shared_max_steps(recipe: Recipe[Any], min_steps: int, parts: Sequence[Values]) -> int:
    """The steps of a whole run of a sweep by successive halving. Raises `InputError` where there can be none."""
    if "pause_at_step" not in chz.chz_fields(recipe.config_class):
        raise InputError(f"a run of {recipe.name} cannot be paused; leave min_steps out")
    for name in ("pause_at_step", "pause_metric"):
        if any(name in part for part in parts):
            raise InputError(f"remove {name}: min_steps sets it")
    steps = {settle(recipe, {"given": part}).config.max_steps for part in parts}
    if len(steps) > 1 or None in steps:
        raise InputError("with min_steps, every run has the same max_steps; set it once, as in max_steps=128")
    (max_steps,) = steps
    if min_steps >= max_steps:
        raise InputError(f"min_steps is {min_steps}; it must be below max_steps, which is {max_steps}")
    return int(max_steps)


def _twice(parts: Sequence[Values]) -> tuple[int, int] | None:
    seen: dict[str, int] = {}
    for number, part in enumerate(parts, 1):
        key = json.dumps(part, sort_keys=True, default=str)
        if key in seen:
            return seen[key], number
        seen[key] = number
    return None


def _values(name: str, text: str, *, is_list: bool) -> list[str]:
    if text.startswith("{") or (is_list and not text.startswith("[")):
        values = [text]
    elif not text.startswith("["):
        values = text.split(",")
    else:
        try:
            read = json.loads(text)
        except ValueError as error:
            raise InputError(f'{name}={text} is no JSON list; write one such as {name}=["a,b", "c"]') from error
        values = [value if isinstance(value, str) else json.dumps(value) for value in read]
    if any(not value for value in values) and len(values) > 1:
        raise InputError(f"{name}={text} has an empty value; write each, as in {name}=1,2")
    return values


class _Progress:
    """Tells the whole of a run's steps and evaluations; where several run at a time, of its failures alone."""

    def __init__(self, telemetry: "Telemetry", *, is_alone: bool) -> None:
        from cookhouse.telemetry import events

        steps = {events.TRAINING_STEP, events.EVAL_COMPLETE, events.RUN_WAITING, events.HUB_DOWNLOAD}
        self._telemetry = telemetry
        self._told = {events.TELEMETRY_FAILED, *(steps if is_alone else ())}

    def write(self, record: "Record") -> None:
        from cookhouse.telemetry import Event

        if isinstance(record, Event) and record.name in self._told:
            self._telemetry.send(record)

    def close(self) -> None:
        """Nothing is held."""


def _parts(config: SweepSettings) -> list[RunSettings]:
    recipe = find_recipe(config.recipe)
    return [settle(recipe, {"given": settings}).config for settings in config.runs]


def _workflow(config: SweepSettings) -> "Workflow[SweepState]":
    from cookhouse.sweeps.workflow import sweep_workflow

    async def run_one(context: "RunContext", recipe: str, folder: Path, settings: Values) -> "RunResult[Any]":
        def progress(telemetry: "Telemetry") -> _Progress:
            return _Progress(telemetry, is_alone=config.jobs == 1)

        return await run_child(context, recipe, folder, settings, relay=progress)

    def descent_of(settings: Values) -> "Descent":
        recipe = find_recipe(config.recipe)
        return recipe.workflow(settle(recipe, {"given": settings}).config).descent

    named = {} if config.registered_model_name is None else {"registered_model_name": config.registered_model_name}
    how = {name: getattr(config, name) for name in _HOW}
    document = experiment_text(experiment_of_runs(config.recipe, named, config.runs, **how)) if config.runs else ""
    return sweep_workflow(config, run_one, descent_of, document)


RECIPE = Recipe(
    name="sweep",
    description="Run a recipe with several settings, and compare the runs.",
    config_class=SweepSettings,
    workflow=_workflow,
    parts=_parts,
)
