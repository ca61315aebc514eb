"""Fields whose default depends on other fields, and fields with another default than their parent's.

Such a field is None where nobody set it and has its value all the same: chz computes it when the config is made, and
keeps what was set with it.
"""

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from typing import Any, TypeVar

import chz
from chz.mungers import Munger

T = TypeVar("T")


class Default(Munger):
    """Value of a field that nobody set, as a function of the whole config, and in words.

    `names` are texts that may be set instead, each with the function of the config, and of what the field is where
    nobody set it, that gives what it stands for.
    """

    def __init__(
        self,
        value: Callable[[Any], Any],
        words: str,
        *,
        names: Mapping[str, Callable[[Any, Any], Any]] | None = None,
    ) -> None:
        self._value = value
        self.words = words
        self.names = names or {}

    def __call__(self, value: Any, *, chzself: Any = None, field: Any = None) -> Any:
        del field
        if isinstance(value, str) and value in self.names:
            return self.names[value](chzself, self._value(chzself))
        return self._value(chzself) if value is None else value

    def origin(self, config: Any) -> str:
        """Name of the one of several defaults that a config has here, where nobody set it."""
        del config
        return "default"

    def with_names(self, names: Mapping[str, Callable[[Any, Any], Any]]) -> "Default":
        """The same, where these texts may be set."""
        made = copy(self)
        made.names = names
        return made


def always(value: Any) -> Default:
    """One value for every config."""
    return Default(lambda _: value, in_words(value))


def redefault(parent: type, name: str, default: Any, *, checks: Sequence[Any] = ()) -> Any:
    """The parent's field with another default: a value, or a `Default`; and with further checks."""
    field = chz.chz_fields(parent)[name]
    if isinstance(field._munger, Default) and not isinstance(default, Default):
        default = always(default)
    is_computed = isinstance(default, Default)
    if isinstance(field._munger, Default) and field._munger.names and not default.names:
        default = default.with_names(field._munger.names)
    # chz has no public way to read a field's doc, checks and type before it is computed.
    return chz.field(
        default=None if is_computed else default,
        munger=default if is_computed else field._munger,
        x_type=_or_none(field.x_type) if is_computed else field.x_type,
        validator=[*field._validator, *checks],
        doc=field._doc,
        metadata=field.metadata,
    )


def computed(
    default: Default, x_type: Any, doc: str, validator: Any = None, *, metadata: dict[str, Any] | None = None
) -> Any:
    """A field that is computed where it is not set; `x_type` is what may be set."""
    x_type = _or_none(x_type)
    return chz.field(default=None, munger=default, x_type=x_type, doc=doc, validator=validator, metadata=metadata)


def part_of(spec: type[T], config: Any, **more: Any) -> T:
    """A spec from a config's settings of the same names; `more` are those that the config has not."""
    has = chz.chz_fields(config)
    names = [name for name in chz.chz_fields(spec) if name in has and name not in more]
    return spec(**{name: getattr(config, name) for name in names}, **more)


def default_in_words(config_class: type, name: str) -> str | None:
    """Value of a field that nobody sets, for `--help`; None where it has none."""
    field = chz.chz_fields(config_class)[name]
    if isinstance(field._munger, Default):
        return field._munger.words
    value = field._default
    return None if value is None else in_words(value)


def in_words(value: Any) -> str:
    """A value of a setting, for people."""
    return "none" if value is None else str(value)


def is_left_open(config: Any, name: str) -> bool:
    """True if a field of a config whose default is computed, or none, has it because nobody set another."""
    field = chz.chz_fields(config)[name]
    return (isinstance(field._munger, Default) or field._default is None) and getattr(config, field.x_name) is None


def has_default(config: Any, name: str) -> bool:
    """True if a field of a config has the value that it would have if nobody had set it."""
    return bool(getattr(config, name) == default_of(config, name))


def default_of(config: Any, name: str) -> Any:
    """Value that a field of a config would have if nobody had set it."""
    field = chz.chz_fields(config)[name]
    munger = field._munger
    return munger(None, chzself=config) if isinstance(munger, Default) else field._default


def given(config: Any, name: str) -> Any:
    """Value set for a field whose default is computed: None where nobody did."""
    return getattr(config, chz.chz_fields(config)[name].x_name)


def _or_none(x_type: Any) -> Any:
    return x_type | None
