"""`cookhouse eval WEIGHTS ...`: the recipe `eval`, with what is evaluated in front."""

import json
import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import typer

from cookhouse.cli.help import GroupedCommand
from cookhouse.cli.options import recipe_command
from cookhouse.cli.run import program, run_recipe
from cookhouse.errors import InputError
from cookhouse.recipes import find_recipe
from cookhouse.runs.listing.weights import weights_asked_for
from cookhouse.service.connection import configured_service
from cookhouse.settings.judge import BENCHMARK_FILES

_RECIPE = "eval"


def eval_command() -> Callable[..., None]:
    """A function for `typer`, as that of the recipe, but that words which set nothing name weights."""
    return recipe_command(find_recipe(_RECIPE), partial(run_recipe, _RECIPE), read_words=_read_words)


def _read_words(words: Sequence[str], flags: Mapping[str, str | None]) -> tuple[Sequence[str], Mapping[str, str]]:
    """The words that are settings, and what the others set: the first is evaluated, the rest compared with it."""
    settings = [word for word in words if _is_setting(word)]
    values = dict(word.split("=", 1) for word in settings)
    weights = [word for word in words if not _is_setting(word)]
    _refuse_benchmarks(weights)
    if flags.get("openai_base_url") is None and "openai_base_url" not in values:  # it has its own names
        address = flags.get("base_url") or values.get("base_url")
        has_service = configured_service(os.environ, address) is not None
        registry = flags.get("registry") or values.get("registry")
        weights = [weights_asked_for(word, has_service=has_service, registry=registry).name for word in weights]
    named = {"weights": weights[0]} if weights else {}
    return settings, named | ({"compare_with": json.dumps(weights[1:])} if weights[1:] else {})


def _refuse_benchmarks(words: Sequence[str]) -> None:
    """Answer whoever names a benchmark or a task where weights stand with the command that was meant."""
    if all(Path(word).is_dir() or "://" in word for word in words):
        return  # what follows loads what the engine's process should not wait for
    from cookhouse.evals import BENCHMARKS
    from cookhouse.evals.inspect import task_place

    known = BENCHMARKS.names()
    asked = [word for word in words if word in known or word.lower().endswith(BENCHMARK_FILES)]
    tasks = [word for word in words if task_place(word) != word or word.endswith(".py")]
    if not asked and not tasks:
        return
    weights = [word for word in words if word not in (*asked, *tasks)] or ["WEIGHTS"]
    settings = {"benchmark": asked, "inspect": tasks}
    meant = [f"{setting}={shlex.quote(','.join(names))}" for setting, names in settings.items() if names]
    raise InputError(
        f"{', '.join([*asked, *tasks])} names what is asked, and no weights; set it by its name: "
        f"{program()} eval {' '.join([*map(shlex.quote, weights), *meant])}"
    )


def _is_setting(word: str) -> bool:
    key, equals, _ = word.partition("=")
    return bool(equals) and key.isidentifier()


eval_app = typer.Typer()
eval_app.command(_RECIPE, cls=GroupedCommand)(eval_command())
