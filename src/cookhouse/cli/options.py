"""Flags of a recipe, generated from its config class; `key=value` sets the same settings."""

import inspect
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import typer

from cookhouse.cli.help import HELP_ALL_OPTION, MOST_USED, OTHER_NAMES, OWN
from cookhouse.cli.verbosity import LEVEL_OPTION, VERBOSE_OPTION, Level
from cookhouse.errors import InputError
from cookhouse.recipes import TYPED, ConfigField, Recipe, aliases_of, config_fields, read_config_file
from cookhouse.settings import Alias

_SHORT_FLAGS = {
    "model_name": ("--model", "-m"),
    "dataset_path": ("--dataset", "-d"),
    "num_epochs": ("--epochs", "-e"),
    "batch_size": ("-b",),
    "learning_rate": ("-l",),
    "lora_rank": ("-r",),
    "benchmark_data": ("--data",),
}
"""Further spellings of the flags that one types most."""

MOST_USED_SETTINGS = (
    *("model_name", "weights", "env", "dataset_path", "test_path", "eval_fraction", "columns", "teacher_model"),
    *("benchmark", "batch_size", "group_size", "max_length", "max_tokens", "temperature", "loss_fn", "learning_rate"),
    *("lr_schedule", "lora_rank", "load_checkpoint_path", "num_epochs", "max_steps", "max_minutes", "save_every"),
    *("eval_every", "num_eval", "evaluators", "keep_best", "limit", "seed", "log_path"),
)
"""What most people set: `--help` has these alone, `--help-all` has these first."""

_SPELLED = {spelling for spellings in _SHORT_FLAGS.values() for spelling in spellings}

_METAVARS = {int: "INTEGER", float: "NUMBER", bool: "true|false", str: "TEXT"}


Layers = Mapping[str, Mapping[str, Any]]
"""Values by setting, from each place that gave some; a later layer overrides."""


Execute: TypeAlias = Callable[[Layers, bool, str | None], None]
"""Of the values, whether it is a dry run, and the name of the adapters if one was given."""


ReadWords: TypeAlias = Callable[[Sequence[str], Mapping[str, str | None]], tuple[Sequence[str], Mapping[str, str]]]
"""Of the words of a command line, those that are `key=value`, and what the others set; the flags are known."""


def recipe_command(recipe: Recipe[Any], execute: Execute, read_words: ReadWords | None = None) -> Callable[..., None]:
    """A function for `typer` with one option per setting and alias, which calls `execute`.

    A config file comes first; `key=value` and flags override it. A setting given both as a flag and as `key=value`, or
    as `key=value` twice, is refused; a repeated flag overrides. With `read_words` there may be other words besides.
    """
    fields = config_fields(recipe)
    aliases = aliases_of(recipe.config_class)
    others = [alias for name, alias in aliases.items() if _flag(name) not in _SPELLED]

    def command(
        settings: list[str] | None,
        config: list[Path] | None,
        dry_run: bool,
        adapters: str | None,
        verbose: bool,  # noqa: ARG001  the callbacks of this and of the next two have done what they ask
        log_level: Level | None,  # noqa: ARG001
        help_all: bool,  # noqa: ARG001
        **flags: str | None,
    ) -> None:
        words, named = (settings or (), {}) if read_words is None else read_words(settings or (), flags)
        twice = [name for name in named if flags.get(name) is not None]
        if twice:
            raise InputError(f"{twice[0]} is given twice, as {named[twice[0]]} and as {_flag(twice[0])}; give it once")
        execute(layers_of(words, config or (), {**flags, **named}), dry_run, adapters)

    parameters = [
        _parameter(
            "settings", list[str] | None, _settings_argument(fields, takes_weights=read_words is not None), None
        ),
        _parameter("config", list[Path] | None, _CONFIG_OPTION, None),
        *(_parameter(field.name, str | None, _option(field), None) for field in _most_used_first(fields)),
        *(_parameter(alias.name, str | None, _alias_option(alias), None) for alias in others),
        _parameter("adapters", str | None, _ADAPTERS_OPTION, None),
        _parameter("dry_run", bool, _DRY_RUN_OPTION, False),
        _parameter("verbose", bool, VERBOSE_OPTION, False),
        _parameter("log_level", Level | None, LEVEL_OPTION, None),
        _parameter("help_all", bool, HELP_ALL_OPTION, False),
    ]
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    command.__doc__ = recipe.description
    return command


def _most_used_first(fields: Sequence[ConfigField]) -> list[ConfigField]:
    """The most used ones in their order, then the others in theirs."""
    places = {name: place for place, name in enumerate(MOST_USED_SETTINGS)}
    return sorted(fields, key=lambda field: places.get(field.name, len(places)))


def layers_of(settings: Sequence[str], files: Sequence[Path], flags: Mapping[str, str | None]) -> Layers:
    """Settings of files, `key=value` words and flags, the files first.

    Raises:
        InputError: a word is not `key=value`, a setting is given twice, or a file cannot be read.
    """
    words: dict[str, str] = {}
    for word in settings:
        key, equals, text = word.partition("=")
        if not equals or not key.isidentifier():
            raise InputError(f"{word!r} is not a setting; write key=value, such as batch_size=8, or a flag")
        if key in words:
            raise InputError(f"{key} is given twice, as {key}={words[key]} and as {word}; give it once")
        words[key] = text
    given = {key: value for key, value in flags.items() if value is not None}
    for key in given.keys() & words.keys():
        raise InputError(f"{key} is given twice, as {key}={words[key]} and as {_flag(key)} {given[key]}; give it once")
    return {**{str(file): read_config_file(file) for file in files}, **dict(zip(TYPED, (words, given), strict=True))}


def _parameter(name: str, annotation: Any, info: Any, default: object) -> inspect.Parameter:
    kind = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(name, kind, annotation=Annotated[annotation, info], default=default)


def _settings_argument(fields: Sequence[ConfigField], *, takes_weights: bool) -> Any:
    def complete(incomplete: str) -> list[str]:
        name, equals, _ = incomplete.partition("=")
        if not equals:
            return [f"{field.name}=" for field in fields if field.name.startswith(name)]
        values = [value for field in fields if field.name == name for value in _choices(field.type)]
        return [word for word in (f"{name}={value}" for value in values) if word.startswith(incomplete)]

    metavar, told = "KEY=VALUE", "Settings by name, as in batch_size=8."
    if takes_weights:
        metavar = "WEIGHTS... KEY=VALUE"
        told = "Base models, tinker:// paths, runs, registered models or PEFT folders; and settings, as in limit=100."
    return typer.Argument(metavar=metavar, help=told, autocompletion=complete)


def _choices(annotation: Any) -> list[str]:
    """The values of a setting that takes a few."""
    metavar = _metavar(annotation)
    return metavar.split("|") if metavar.islower() and "|" in metavar else []


_ADAPTERS_OPTION = typer.Option(
    "--adapters",
    metavar="NAME",
    help="What the run needs from outside: local (an engine on this machine), hosted, noop (everything made up), or "
    "your own cookhouse.Adapters, or a function that makes them, as module:NAME or file.py:NAME. The ports that they "
    "fill replace the command line's, such as its sinks.",
)
_DRY_RUN_OPTION = typer.Option(
    "--dry-run", help="Check everything and show the plan, with --verbose every setting; train nothing."
)


_CONFIG_OPTION = typer.Option(
    "--config", metavar="FILE", help="Settings from a YAML, TOML or JSON file; flags and key=value override it."
)


def _alias_option(alias: Alias) -> Any:
    meant = " and ".join(_flag(name) for name in alias.means)
    return typer.Option(
        _flag(alias.name),
        help=f"Another name of {meant}" + (f" ({alias.doc})." if alias.doc else "."),
        metavar="VALUE",
        rich_help_panel=OTHER_NAMES,
    )


def _option(field: ConfigField) -> Any:
    return typer.Option(
        _flag(field.name),
        *_SHORT_FLAGS.get(field.name, ()),
        help=field.doc if not field.default else f"{field.doc} [default: {field.default}]",
        metavar=_metavar(field.type),
        rich_help_panel=MOST_USED if field.name in MOST_USED_SETTINGS else field.group or OWN,
        show_default=False,
    )


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _metavar(annotation: Any) -> str:
    """Kind of value that a setting takes, in one word: INTEGER, TEXT, or the choices."""
    origin = typing.get_origin(annotation)
    if origin is typing.Literal:
        return "|".join(str(choice) for choice in typing.get_args(annotation))
    if origin in (typing.Union, types.UnionType):
        some = [choice for choice in typing.get_args(annotation) if choice is not types.NoneType]
        return "|".join(_metavar(choice) for choice in some)
    return _METAVARS.get(annotation, "VALUE")
