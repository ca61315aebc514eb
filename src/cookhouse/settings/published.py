"""The two sets of defaults that a recipe has: for the embedded model, and as published, for every other.

    class Config(SupervisedSettings):
        model_name: str = published_model("meta-llama/Llama-3.1-8B")
        learning_rate: float = redefault(SupervisedSettings, "learning_rate", by_model(embedded=5e-3, published=2e-4))

The model decides. Where nobody names one it is the embedded model, and on the hosted service, which has none such, the
published one, or what has come in its place there.
"""

import logging
from collections.abc import Collection
from pathlib import PurePath
from typing import Any

import chz

from cookhouse.assets import TINY_MODEL
from cookhouse.errors import InputError
from cookhouse.models.names import plain_name
from cookhouse.settings.defaults import Default, always, has_default, in_words, is_left_open, redefault
from cookhouse.settings.training import ModelSettings

logger = logging.getLogger(__name__)


class _Model(Default):
    """The embedded model; `published` is the one to take on the hosted service."""

    def __init__(self, published: str) -> None:
        super().__init__(lambda _: TINY_MODEL, f"{TINY_MODEL}, on the hosted service {published} or its successor")
        self.published = published


def published_model(name: str) -> Any:
    """The setting `model_name` of a recipe that was published with this model."""
    return redefault(ModelSettings, "model_name", _Model(name))


def published_model_of(config_class: type) -> str | None:
    """The model that a recipe was published with; None: nobody has said."""
    default = chz.chz_fields(config_class)["model_name"]._munger
    return default.published if isinstance(default, _Model) else None


class ByModel(Default):
    """One value for cookhouse's own small model, and another, which is published."""

    def origin(self, config: Any) -> str:
        return "embedded default" if is_embedded(config) else "published default"


def by_model(*, embedded: Any, published: Any) -> Default:
    """One value for cookhouse's own small model, and the published one for all others."""
    if embedded == published:
        return always(published)
    return ByModel(
        lambda config: embedded if is_embedded(config) else published,
        f"{in_words(embedded)} for {TINY_MODEL}, else {in_words(published)} (published)",
    )


def is_embedded(config: Any) -> bool:
    """True if a config is of the embedded model, for which the published defaults are not meant."""
    return bool(config.model_name == TINY_MODEL)


def is_published(config: Any) -> bool:
    """True if a config is of the very model that its recipe was published with, whoever offers it."""
    published = published_model_of(type(config))
    return published is not None and _own_name(config.model_name) == _own_name(published)


def _own_name(model: str) -> str:
    """Without the organization, and without the context that it is rented out with."""
    return PurePath(plain_name(model)).name


def default_origin(config: Any, name: str) -> str:
    """Name of the default that a setting has which nobody set: `embedded default`, `published default`, `rule`, or the
    only one.
    """
    default = chz.chz_fields(config)[name]._munger
    return default.origin(config) if isinstance(default, Default) else "default"


def origins_of(config: Any) -> dict[str, str]:
    """Origin of the value of each setting: `set` where it is not what it would be if nobody had set it, or where
    it would be nothing; else which default, as `default_origin`.
    """
    return {name: _origin(config, name) for name in chz.chz_fields(config)}


def _origin(config: Any, name: str) -> str:
    try:
        return default_origin(config, name) if has_default(config, name) else "set"
    except InputError:  # what it is by default is not known of this config, such as the model of unknown weights
        return "set"
    except Exception:  # whatever a user's own default raises: a record of where a value came from ends no run
        logger.warning("the default of %s cannot be computed; its value is recorded as set", name, exc_info=True)
        return "set"


def defaults_taken(config: Any, without: Collection[str] = ()) -> str | None:
    """In words, which of the two sets the settings that nobody set have their values from, but for some; None: there
    are none.
    """
    open_names = [name for name in chz.chz_fields(config) if name not in without and is_left_open(config, name)]
    names = [name for name in open_names if default_origin(config, name) in ("embedded default", "published default")]
    if not names:
        return None
    taken = [f"{name} {value}" for name in names if (value := getattr(config, name)) is not None]
    source = f"those for {TINY_MODEL}" if is_embedded(config) else f"as published, for {config.model_name}"
    return f"{source} ({', '.join(taken)})"
