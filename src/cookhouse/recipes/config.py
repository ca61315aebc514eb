"""Recipe configs from files, mappings and `key=value` texts, and where each value came from."""

import inspect
import json
import os
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import chz

from cookhouse.adapters import EmbeddedEngine, Service, is_hosted
from cookhouse.assets import absolute_model
from cookhouse.callables.arguments import fits, shown
from cookhouse.errors import InputError, UnknownNameError, with_article
from cookhouse.files import expanded_home
from cookhouse.naming import names_in
from cookhouse.recipes.aliases import aliases_of, tell_choices, without_aliases, without_colons
from cookhouse.recipes.recipe import Recipe
from cookhouse.recipes.served import model_of_service
from cookhouse.runs.listing.find import is_run
from cookhouse.runs.listing.weights import weights_named
from cookhouse.settings import (
    ROWS_FIELDS,
    ModelSettings,
    RunSettings,
    default_in_words,
    default_origin,
)
from cookhouse.settings.defaults import given as set_value
from cookhouse.settings.defaults import is_left_open
from cookhouse.settings.documents import Document, read_document
from cookhouse.settings.facts import of_launch, weights_settings
from cookhouse.settings.folder import FolderSettings
from cookhouse.settings.reading import check_read, check_typed

if TYPE_CHECKING:
    from cookhouse.data import GivenRows

CONFIG_FILE = "config.json"
_MODELS = ("model_name", "preference_base_model")
"""Settings that name base models, where these do not name other weights as well."""
TYPED = ("key=value", "flag")
"""Names of layers that somebody typed word by word."""

C = TypeVar("C", bound=RunSettings)


@dataclass(frozen=True, kw_only=True)
class ConfigField:
    """One setting of a recipe, as a command line needs it."""

    name: str
    type: Any
    """Of what may be set."""
    default: str | None
    """In words; None where nothing is set unless somebody does."""
    doc: str
    group: str
    """The settings that it stands with in a help: `help_title` of the class that declares it; empty: none has one."""


@dataclass(frozen=True, kw_only=True)
class Settled(Generic[C]):
    """A config, and where the value of each of its settings came from."""

    config: C
    origins: Mapping[str, str]
    """By setting, in words: `default` or which of two, the path of a file, `key=value` and so on."""


def config_fields(recipe: Recipe[Any]) -> tuple[ConfigField, ...]:
    """The settings of a recipe: the model first, then the recipe's own, then as the specs declare them; files last."""
    known = chz.chz_fields(recipe.config_class)
    ends = {ModelSettings: 0, FolderSettings: 2}
    specs = sorted(recipe.config_class.__mro__[:-1], key=lambda spec: ends.get(spec, 1))
    ordered = dict.fromkeys(name for spec in specs for name in inspect.get_annotations(spec) if name in known)
    return tuple(
        ConfigField(
            name=name,
            # chz has no public way to read a field's type before it is computed, or its doc.
            type=known[name].x_type,
            default=default_in_words(recipe.config_class, name),
            doc=known[name]._doc,
            group=_group(recipe.config_class, name),
        )
        for name in ordered
    )


def _group(config_class: type, name: str) -> str:
    """As the first class says that has the field: those below it give it another default."""
    declaring = [spec for spec in config_class.__mro__ if name in inspect.get_annotations(spec)]
    title: str = vars(declaring[-1]).get("help_title", "")
    return title


def make_config(recipe: Recipe[C], config: C | Mapping[str, Any] | None, service: Service = None) -> C:
    """A config from one, from values by setting, or from nothing but the defaults. `service` and errors as `settle`."""
    if isinstance(config, recipe.config_class):
        _check_types(config)
        config = _placed(config, service)
        check_read(config)
        if is_left_open(config, "model_name"):
            chosen = {name for name in chz.chz_fields(config) if not is_left_open(config, name)}
            config = chz.replace(config, **model_of_service(recipe.config_class, service, config.base_url, chosen))
        named = {name: getattr(config, name) for name in weights_settings(recipe.config_class)}
        weights = {name: _weights(recipe, name, value) for name, value in named.items()}
        given = {name: _given_rows(name, getattr(config, name, None)) for name in ROWS_FIELDS}
        meant = {name: value for name, value in (weights | given).items() if value not in (None, named.get(name))}
        return chz.replace(config, **meant) if meant else config
    if config is None or isinstance(config, Mapping):
        for name in config or {}:
            if not isinstance(name, str):
                raise InputError(f"a setting is named by text, such as 'batch_size', and not by {shown(name)}")
        return settle(recipe, {"given": config or {}}, service).config
    raise InputError(
        f"a config of recipe {recipe.name} is {with_article(recipe.config_class.__name__)} or a dict, "
        f"not {with_article(type(config).__name__)}"
    )


def _placed(config: C, service: Service) -> C:
    """With places as they are named from any folder: `~` is the home, and a folder that holds a model its whole path,
    where no other service has models of such names.
    """
    is_own = service is None or isinstance(service, EmbeddedEngine)
    is_elsewhere = bool(config.base_url or os.environ.get("TINKER_BASE_URL")) or is_hosted(service, os.environ)
    changes: dict[str, str] = {}
    for name in chz.chz_fields(config):
        value = set_value(config, name)  # a default that is computed may not be known yet
        if not isinstance(value, str):
            continue
        place = expanded_home(name, value)
        if name in _MODELS and (place.startswith(".") or (is_own and not is_elsewhere)):
            place = absolute_model(place)
        if place != value:
            changes[name] = place
    return chz.replace(config, **changes) if changes else config


def _check_types(config: RunSettings) -> None:
    """Refuse values that do not fit their settings: nobody has checked those of an object that was made directly."""
    for name, field in chz.chz_fields(config).items():
        value = set_value(config, name)
        is_open = is_left_open(config, name) or (name in ROWS_FIELDS and not isinstance(value, str))
        if not is_open and not fits(value, field.x_type):
            raise InputError(f"{name}={shown(value)} does not fit; {name} takes {_type_name(field.x_type)}")


def settle(recipe: Recipe[C], layers: Mapping[str, Mapping[str, Any]], service: Service = None) -> Settled[C]:
    """A config from values by setting, layer by layer, each named for where it comes from: a later one overrides.

    Texts are read as on a command line. Names of other systems are understood (`Alias`). With
    `behavior_if_log_dir_exists=resume` and a `log_path` that holds a run, the run's own config.json is the first layer,
    so that naming the folder is enough to continue it. `service` is the adapter of that port, if there is one: on the
    hosted service the model is the one that the recipe was published with, or its successor, where nobody names another
    (`model_of_service`).

    Raises:
        UnknownNameError: a key is not a setting of the recipe.
        InputError: a value does not fit its setting, or two of them do not go together.
    """
    known = chz.chz_fields(recipe.config_class)
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for origin, given in layers.items():
        plain = without_aliases(recipe.config_class, given)
        for key in plain:
            if key not in known:
                names = [*known, *aliases_of(recipe.config_class)]
                unknown = UnknownNameError(f"setting of recipe {recipe.name}", key, names)
                raise unknown.at(given.place(key)) if isinstance(given, Document) else unknown
        read = {key: _weights(recipe, key, _placed_value(recipe, key, value, given)) for key, value in plain.items()}
        values |= read
        origins |= dict.fromkeys(read, origin)
    tell_choices(recipe.config_class, {name for given in layers.values() for name in given})
    recorded = _recorded(recipe, values)
    base_url = values.get("base_url", recorded.get("base_url"))
    published = model_of_service(recipe.config_class, service, base_url, {*recorded, *values})
    config = _placed(recipe.config_class(**{**published, **recorded, **values}), service)
    check_read(config)
    check_typed(config, [name for name, origin in origins.items() if origin in TYPED])
    defaults = {name: default_origin(config, name) for name in known} | dict.fromkeys(published, "published default")
    return Settled(config=config, origins=defaults | dict.fromkeys(recorded, "the run's own") | origins)


def read_config_file(path: Path) -> Mapping[str, Any]:
    """Values by setting from a YAML, TOML or JSON file, told apart by its ending.

    Raises:
        InputError: it cannot be read, or is no mapping; a line that does not parse is named.
    """
    values = read_document(path)
    if not isinstance(values, Mapping) or not all(isinstance(key, str) for key in values):
        raise InputError(f"{path} holds no settings by name; write one per line, such as batch_size: 8")
    return values


def _recorded(recipe: Recipe[Any], values: Mapping[str, Any]) -> dict[str, Any]:
    if values.get("behavior_if_log_dir_exists") != "resume" or values.get("log_path") is None:
        return {}
    path = Path(values["log_path"]) / CONFIG_FILE
    if not path.exists():
        return {}
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        recorded, started = dict(record["config"]), record["recipe"]
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path} is not the config of a run ({error}); name another log_path") from error
    if started != recipe.name:
        raise InputError(f"{path.parent} holds a run of {started}, not of {recipe.name}; choose another log_path")
    if foreign := sorted(recorded.keys() - chz.chz_fields(recipe.config_class).keys()):
        raise InputError(
            f"{path} has settings that this recipe does not know: {', '.join(foreign)}; name another log_path"
        )
    return {name: value for name, value in recorded.items() if name not in of_launch(recipe.config_class)}


def _placed_value(recipe: Recipe[Any], key: str, value: Any, given: Mapping[str, Any]) -> Any:
    """As `_value`; what is wrong with one of a file is said with the line."""
    try:
        return _value(recipe, key, value)
    except InputError as error:
        if isinstance(given, Document) and key in given.lines:
            raise error.at(given.place(key)) from error
        raise


def _value(recipe: Recipe[Any], key: str, value: Any) -> Any:
    """A value as its field takes it; a text is read unless the field takes texts alone."""
    if (rows := _given_rows(key, value)) is not None:
        return rows
    if isinstance(value, str):
        value = expanded_home(key, value)
    value = without_colons(key, value)
    _refuse_benchmark(key, value)
    field_type = chz.chz_fields(recipe.config_class)[key].x_type
    blueprint = chz.Blueprint(_lone_field(field_type))
    try:
        if isinstance(value, bool) and not fits(value, field_type):  # which Python has among its numbers
            raise TypeError
        if isinstance(value, str):
            made = blueprint.make_from_argv([f"value={value}"])
        else:
            made = blueprint.apply({"value": value}).make()
    except Exception as error:  # chz has no common class for what it refuses
        raise InputError(f"{key}={value!r} does not fit; {key} takes {_type_name(field_type)}") from error
    return made.value


def _refuse_benchmark(key: str, value: Any) -> None:
    if key != "env" or not isinstance(value, str):
        return
    from cookhouse.envs import ENVIRONMENTS
    from cookhouse.evals import BENCHMARKS

    for name in names_in(value):
        if name in BENCHMARKS.names() and name not in ENVIRONMENTS.names():
            raise InputError(
                f"{name} is no environment to train in: it evaluates; set evaluators={name} to measure a run by it, or "
                f"ask any weights with `cookhouse eval WEIGHTS benchmark={name}`"
            )


def _weights(recipe: Recipe[Any], key: str, value: Any) -> Any:
    """A value in which the name of a run, where weights are asked for, is its folder."""
    known = weights_settings(recipe.config_class).get(key)
    if known is None or not isinstance(value, str):
        return value

    def renamed(name: str) -> str:
        found = weights_named(name, may_be_model=known.purpose != "training")
        return absolute_model(found) if found.startswith(".") and not is_run(Path(found)) else found

    return known.renamed(value, renamed)


def _given_rows(key: str, value: Any) -> "GivenRows | None":
    """Rows that are given where data is named; None: the value is something else."""
    if key not in ROWS_FIELDS or value is None or type(value) is str:
        return None
    from cookhouse.data import GivenRows

    return GivenRows.of(value)


def _lone_field(field_type: Any) -> type[Any]:
    """A config of one field: a value is read by itself, before it is asked what goes with it."""
    made: type[Any] = chz.chz(type("_Lone", (), {"__annotations__": {"value": field_type}, "__module__": __name__}))
    return made


_IN_WORDS: Mapping[Any, str] = {bool: "true or false", int: "a whole number", float: "a number", str: "a text"}


def _type_name(field_type: Any) -> str:
    if typing.get_origin(field_type) is typing.Literal:
        return ", ".join(repr(choice) for choice in typing.get_args(field_type))
    if typing.get_origin(field_type) in (typing.Union, types.UnionType):
        some = [choice for choice in typing.get_args(field_type) if choice is not types.NoneType]
        return " or ".join(_type_name(choice) for choice in some)
    if typing.get_origin(field_type) is Mapping:
        return 'a mapping of texts, such as {"team": "a"}'
    if field_type in _IN_WORDS:
        return _IN_WORDS[field_type]
    return field_type.__name__ if isinstance(field_type, type) else str(field_type).replace("typing.", "")
