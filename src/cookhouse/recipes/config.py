"""Recipe configs from `key=value` text, and back to JSON."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_type_hints

import chz

from cookhouse.errors import InputError, UnknownNameError
from cookhouse.recipes.recipe import Recipe

CONFIG_FILE = "config.json"


@dataclass(frozen=True, kw_only=True)
class ConfigField:
    """One setting of a recipe, as a command line needs it."""

    name: str
    type: Any
    default: Any
    doc: str


def config_fields(recipe: Recipe) -> tuple[ConfigField, ...]:
    """The settings of a recipe in the order of their declaration."""
    hints = get_type_hints(recipe.config_class)
    defaults = recipe.config_class()
    return tuple(
        # chz has no public way to read a field's doc.
        ConfigField(name=name, type=hints[name], default=getattr(defaults, name), doc=field._doc)
        for name, field in chz.chz_fields(recipe.config_class).items()
    )


def parse_config(recipe: Recipe, assignments: Mapping[str, str]) -> Any:
    """A config from texts by field name; what is not named keeps its default, or, on a resume, its recorded value.

    With `behavior_if_log_dir_exists=resume` and a `log_path` that holds a run, the run's own config.json is the
    starting point, so that naming the folder is enough to continue it.

    Raises:
        UnknownNameError: a key is not a field of the recipe.
        InputError: a value does not fit its field.
    """
    known = chz.chz_fields(recipe.config_class)
    for key in assignments:
        if key not in known:
            raise UnknownNameError(f"setting of recipe {recipe.name}", key, known)
    values = _recorded(recipe, assignments, known) | {
        key: _value(recipe, key, text) for key, text in assignments.items()
    }
    return recipe.config_class(**values)


def _recorded(recipe: Recipe, assignments: Mapping[str, str], known: Mapping[str, Any]) -> dict[str, Any]:
    if assignments.get("behavior_if_log_dir_exists") != "resume" or "log_path" not in assignments:
        return {}
    path = Path(assignments["log_path"]) / CONFIG_FILE
    if not path.exists():
        return {}
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        recorded, started = dict(record["config"]), record["recipe"]
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path} is not the config of a run ({error}); name another log_path") from error
    if started != recipe.name:
        raise InputError(f"{path.parent} holds a run of {started}, not of {recipe.name}; choose another log_path")
    if foreign := sorted(recorded.keys() - known.keys()):
        raise InputError(
            f"{path} has settings that this recipe does not know: {', '.join(foreign)}; name another log_path"
        )
    return recorded


def _value(recipe: Recipe, key: str, text: str) -> Any:
    field_type = get_type_hints(recipe.config_class)[key]
    try:
        made = chz.Blueprint(recipe.config_class).make_from_argv([f"{key}={text}"])
    except InputError:
        raise
    except Exception as error:  # chz has no common class for what it refuses
        raise InputError(f"{key}={text!r} does not fit; {key} takes {_type_name(field_type)}") from error
    return getattr(made, key)


def _type_name(field_type: Any) -> str:
    return field_type.__name__ if isinstance(field_type, type) else str(field_type).replace("typing.", "")
