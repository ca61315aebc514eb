"""Checks of settings when a config is made: of one field, and of a whole spec."""

import math
from collections.abc import Callable, Collection
from typing import Any, ClassVar

from cookhouse.errors import InputError, UnknownNameError
from cookhouse.losses.bounds import Bound

Check = Callable[[Any, str], None]
"""Of a config and the name of one of its fields; fits chz's `validator`. A field that is None passes."""


class Checked:
    """Base of a spec with a `chz.validate` of its own: what inherits from several specs makes the checks of each.

    chz alone keeps those of the first one that has any.
    """

    __chz_validators__: ClassVar[list[Callable[[Any], None]]] = []

    def __init_subclass__(cls, **named: Any) -> None:
        super().__init_subclass__(**named)
        # chz has no public way to read a class's checks.
        of_specs = (vars(spec).get("__chz_validators__", []) for spec in reversed(cls.__mro__))
        cls.__chz_validators__ = list(dict.fromkeys(check for checks in of_specs for check in checks))


def at_least(least: float) -> Check:
    """A finite number that is not below `least`."""
    return _number(lambda value: value >= least, f"at least {least}")


def above(bound: float, example: str) -> Check:
    """A finite number greater than `bound`."""
    return _number(lambda value: value > bound, f"a number above {bound}, such as {example}")


def between(low: float, high: float) -> Check:
    """A number in the closed interval."""
    return _number(lambda value: low <= value <= high, f"a number between {low} and {high}")


def within(low: float, high: float, example: str) -> Check:
    """A number in the open interval."""
    return _number(lambda value: low < value < high, f"above {low} and below {high}, such as {example}")


def bounded(bound: Bound) -> Check:
    """A number that a bound allows."""
    return _number(bound.allows, str(bound))


def one_of(kind: str, allowed: Collection[str]) -> Check:
    """One of the names."""

    def check(config: Any, name: str) -> None:
        value = getattr(config, name)
        if value is not None and value not in allowed:
            raise UnknownNameError(kind, value, allowed)

    return check


def _number(is_good: Callable[[float], bool], wanted: str) -> Check:
    def check(config: Any, name: str) -> None:
        value = getattr(config, name)
        if isinstance(value, str):  # it stands for a number, which is asked about too
            return
        if value is not None and not (math.isfinite(value) and is_good(value)):
            raise InputError(f"{_plain(name)} is {value}; it must be {wanted}")

    return check


def _plain(name: str) -> str:
    """Chz asks about a computed field twice, under `X_` for what was set."""
    return name.removeprefix("X_")
