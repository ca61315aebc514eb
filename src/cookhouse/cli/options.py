"""Flags of a recipe, generated from its config class; `key=value` sets the same settings."""

import inspect
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

import typer

from cookhouse.errors import InputError
from cookhouse.recipes import ConfigField, Recipe, config_fields

_SHORT_FLAGS = {
    "model_name": ("--model", "-m"),
    "dataset_path": ("--dataset", "-d"),
    "num_epochs": ("--epochs", "-e"),
    "batch_size": ("-b",),
    "learning_rate": ("-l",),
    "lora_rank": ("-r",),
}
"""Further spellings of the flags that one types most."""

_METAVARS = {int: "INTEGER", float: "NUMBER", bool: "true|false", str: "TEXT"}


def recipe_command(recipe: Recipe, execute: Callable[[dict[str, str], bool], None]) -> Callable[..., None]:
    """A function for `typer` with one option per setting, which calls `execute(texts by setting, dry_run)`.

    A setting given both as a flag and as `key=value`, or as `key=value` twice, is refused; a repeated flag overrides.
    """
    fields = config_fields(recipe)

    def command(settings: list[str] | None, dry_run: bool, **flags: str | None) -> None:
        execute(merge_assignments(settings or (), flags), dry_run)

    parameters = [
        _parameter("settings", list[str] | None, _SETTINGS_ARGUMENT, None),
        *(_parameter(field.name, str | None, _option(field), None) for field in fields),
        _parameter("dry_run", bool, _DRY_RUN_OPTION, False),
    ]
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    command.__doc__ = recipe.description
    return command


def merge_assignments(settings: Sequence[str], flags: Mapping[str, str | None]) -> dict[str, str]:
    """Texts by setting, from `key=value` words and flags.

    Raises:
        InputError: a word is not `key=value`, or a setting is given twice.
    """
    merged: dict[str, str] = {}
    for word in settings:
        key, equals, text = word.partition("=")
        if not equals or not key.isidentifier():
            raise InputError(f"{word!r} is not a setting; write key=value, such as batch_size=8, or a flag")
        if key in merged:
            raise InputError(f"{key} is given twice, as {key}={merged[key]} and as {word}; give it once")
        merged[key] = text
    for key, value in flags.items():
        if value is None:
            continue
        if key in merged:
            raise InputError(f"{key} is given twice, as {key}={merged[key]} and as {_flag(key)} {value}; give it once")
        merged[key] = value
    return merged


def _parameter(name: str, annotation: Any, info: Any, default: object) -> inspect.Parameter:
    kind = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(name, kind, annotation=Annotated[annotation, info], default=default)


_SETTINGS_ARGUMENT = typer.Argument(metavar="KEY=VALUE", help="Settings by name, as in batch_size=8.")
_DRY_RUN_OPTION = typer.Option("--dry-run", help="Check everything and show the plan; train nothing.")


def _option(field: ConfigField) -> Any:
    return typer.Option(
        _flag(field.name),
        *_SHORT_FLAGS.get(field.name, ()),
        help=field.doc if field.default is None else f"{field.doc} [default: {field.default}]",
        metavar=_metavar(field.type),
        show_default=False,
    )


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _metavar(annotation: Any) -> str:
    """What a setting takes, in one word: INTEGER, TEXT, or the choices."""
    origin = typing.get_origin(annotation)
    if origin is typing.Literal:
        return "|".join(str(choice) for choice in typing.get_args(annotation))
    if origin in (typing.Union, types.UnionType):
        some = [choice for choice in typing.get_args(annotation) if choice is not types.NoneType]
        return "|".join(_metavar(choice) for choice in some)
    return _METAVARS.get(annotation, "VALUE")
