"""Conditions under which a setting is read: declared next to it, so that one which changes nothing is refused where
somebody set it.

    labels: str = chz.field(default="", doc="…")
    averaging: str = chz.field(default="macro", doc="…", validator=read_if(lambda c: c.labels, "with labels"))

What somebody set shows by its value: another than the default. Words of a command line are looked at one by one,
since there the default's own value was typed for a reason, too.
"""

import inspect
from collections.abc import Callable, Collection
from typing import Any

import chz

from cookhouse.errors import InputError
from cookhouse.settings.defaults import Default, has_default, in_words, redefault

_SPECS = "cookhouse.settings"


class ReadIf:
    """A check of one field: it has its default wherever nothing reads it. Fits chz's `validator`."""

    def __init__(self, is_read: Callable[[Any], object], when: str, idle: Collection[Any] = ()) -> None:
        self.is_read = is_read
        self._idle = idle
        self.when = when

    def __call__(self, config: Any, name: str) -> None:
        plain = name.removeprefix("X_")  # under which chz asks for what was set, before a default is computed
        if not has_default(config, plain):
            self.check(config, plain)

    def check(self, config: Any, name: str) -> None:
        """Raises `InputError` unless the field is read, or asks for nothing."""
        if self.is_unread(config, name):
            raise InputError(
                f"{name}={in_words(getattr(config, name))} would change nothing: it is read {self.when}; leave it out"
            )

    def is_unread(self, config: Any, name: str) -> bool:
        """True if its value asks for something, and nothing reads it."""
        return not self.is_idle(config, name) and not self.is_read(config)

    def is_idle(self, config: Any, name: str) -> bool:
        """True if its value asks for nothing."""
        value = getattr(config, name)
        return value is None or value in self._idle


def read_if(is_read: Callable[[Any], object], when: str, *, idle: Collection[Any] = ()) -> ReadIf:
    """A check that refuses a setting which nothing reads: `when` says in words when it is read, as "with
    labels". Values of `idle` ask for nothing, as None does, and are let through.
    """
    return ReadIf(is_read, when, idle)


def narrowed(parent: type, name: str, check: ReadIf) -> Any:
    """The parent's field, read under a further condition."""
    field = chz.chz_fields(parent)[name]
    default = field._munger if isinstance(field._munger, Default) else field._default
    return redefault(parent, name, default, checks=[check])


def check_read(config: Any) -> None:
    """Refuse settings that have another value than their default, and nothing reads. Raises `InputError`."""
    for name in chz.chz_fields(config):
        for check in read_conditions(type(config), name):
            check(config, name)


def check_typed(config: Any, names: Collection[str]) -> None:
    """Refuse settings that somebody typed and nothing reads, also those with their default's value. Raises
    `InputError`.
    """
    for name in names:
        for check in read_conditions(type(config), name):
            check.check(config, name)


def unread_defaults(config: Any) -> list[str]:
    """Sentences about settings of ours that nothing reads although a recipe gives them a default of its own."""
    ours = [spec for spec in type(config).__mro__ if spec.__module__.startswith(_SPECS)]
    own = [spec for spec in type(config).__mro__ if spec not in ours]
    names = dict.fromkeys(name for spec in reversed(own) for name in inspect.get_annotations(spec))
    found: dict[str, list[str]] = {}
    for name in names:
        conditions = dict.fromkeys(check for spec in ours for check in read_conditions(spec, name))
        if unread := next((check for check in conditions if check.is_unread(config, name)), None):
            found.setdefault(unread.when, []).append(f"{name}={in_words(getattr(config, name))}")
    return [
        f"by default {', '.join(some)}, which changes nothing here: it is read {when}" for when, some in found.items()
    ]


def read_conditions(config_class: type, name: str) -> list[ReadIf]:
    """Conditions of a field, and of the same field in the classes above, which a bare default leaves out."""
    specs = [spec for spec in config_class.__mro__ if chz.is_chz(spec)]
    fields = [field for spec in specs if (field := chz.chz_fields(spec).get(name)) is not None]
    # chz has no public way to read a field's checks.
    checks = (check for field in fields for check in field._validator)
    return list(dict.fromkeys(check for check in checks if isinstance(check, ReadIf)))
