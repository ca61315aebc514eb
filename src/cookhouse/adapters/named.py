"""Adapters by name: the presets, and those of the user's own."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeAlias, TypeGuard

from cookhouse.adapters.bundle import Adapters
from cookhouse.adapters.ports import check_adapter, check_ports
from cookhouse.errors import InputError
from cookhouse.naming import OpenSet, build

AdaptersBuilder: TypeAlias = Callable[[], Adapters]
"""Makes the adapters of a run."""


def _check(thing: Any) -> AdaptersBuilder | None:
    if isinstance(thing, Adapters):
        return lambda: thing
    return thing if callable(thing) else None


ADAPTERS: OpenSet[AdaptersBuilder] = OpenSet(
    kind="bundle of adapters",
    group="cookhouse.adapters",
    builtin={preset: f"cookhouse.adapters.bundle:Adapters.{preset}" for preset in ("local", "hosted", "noop")},
    check=_check,
    wants="adapters are an object of cookhouse.Adapters, or a function of no arguments that makes one",
)


def make_adapters(name: str) -> Adapters:
    """The adapters of a name, which they keep.

    Raises:
        UnknownNameError, InputError: as `OpenSet.find`; or what has the name makes none, or fills a port with what
            cannot be there.
    """
    made = build(ADAPTERS, name, _are_adapters)
    check_adapters(name, made)
    return replace(made, name=name)


GivenAdapters: TypeAlias = Adapters | Mapping[str, Any] | str | None
"""Adapters themselves, adapters by port, the name of a bundle, or none."""


def given_adapters(given: GivenAdapters) -> Adapters:
    """The adapters that somebody gave, each port filled with what can be there.

    Raises:
        UnknownNameError, InputError: as `make_adapters`; or there is no port of a name, or it cannot be filled so.
    """
    if isinstance(given, str):
        return make_adapters(given)
    if isinstance(given, Mapping):
        check_ports([str(name) for name in given], "adapters are given by port, as in {'sinks': []}")
        given = Adapters(**given)
    adapters = given or Adapters()
    check_adapters("Adapters", adapters)
    return adapters


def _are_adapters(thing: object) -> TypeGuard[Adapters]:
    return isinstance(thing, Adapters)


def check_adapters(name: str, adapters: Adapters) -> None:
    """See that each port is filled with what can be there: nobody may have checked types. `name` is said of the others.

    Raises:
        InputError: one is not.
    """
    for port in adapters.ports:
        check_adapter(port, getattr(adapters, port), name)
    if adapters.ask is not None and not callable(adapters.ask):
        raise InputError(f"{name} has {adapters.ask!r} for ask; it must be a function of a question")
    if not isinstance(adapters.program, str | None):
        raise InputError(f"{name} has {adapters.program!r} for program; it must be text")
    if not isinstance(adapters.name, str | None):
        raise InputError(f"{name} has {adapters.name!r} for name; it must be text")
