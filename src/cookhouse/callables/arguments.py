"""Arguments of what people call from Python, checked by the types that the signature names."""

import builtins
import functools
import inspect
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from cookhouse.errors import InputError

F = TypeVar("F", bound=Callable[..., Any])
_MAX_SHOWN = 80
_WORDS: Mapping[Any, str] = {
    bool: "True or False",
    bytes: "bytes",
    float: "a number",
    int: "a whole number",
    str: "a text",
    types.NoneType: "None",
}


def checked(function: F) -> F:
    """The function, or a class as it is made, which refuses arguments of other types than its signature names.

    A name that is imported for type checkers alone takes anything.

    Raises:
        InputError: an argument does not fit; it is named, with what is allowed.
    """
    if isinstance(function, type):
        function.__init__ = checked(function.__init__)  # type: ignore[misc]
        return typing.cast("F", function)
    signature = inspect.signature(function)
    called = function.__qualname__.removesuffix(".__init__")

    @functools.cache
    def hints() -> Mapping[str, Any]:
        return typing.get_type_hints(function, None, _Names(function.__globals__))

    def check(args: Any, named: Any) -> None:
        for name, value in signature.bind(*args, **named).arguments.items():
            hint = hints().get(name, Any)
            if not fits(value, hint):
                raise InputError(f"{name} of {called} is {shown(value)}; it must be {in_words(hint)}")

    @functools.wraps(function)
    def call(*args: Any, **named: Any) -> Any:
        check(args, named)
        return function(*args, **named)

    @functools.wraps(function)
    async def call_async(*args: Any, **named: Any) -> Any:
        check(args, named)
        return await function(*args, **named)

    return typing.cast("F", call_async if inspect.iscoroutinefunction(function) else call)


def fits(value: object, hint: Any) -> bool:
    """True if a value is of a type as annotations name it. True and False are no numbers, whole numbers are floats; of
    what has to have methods, only these are looked for.
    """
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if hint in (Any, object, _Unknown):
        return True
    if isinstance(hint, TypeVar):
        return fits(value, hint.__bound__ or Any)
    if origin in (typing.Union, types.UnionType):
        return any(fits(value, part) for part in parts)
    if origin is typing.Literal:
        return any(value == choice and type(value) is type(choice) for choice in parts)
    if origin in (tuple, list, Sequence, Iterable):
        if not isinstance(value, Iterable) or not isinstance(value, origin) or isinstance(value, str | bytes | Mapping):
            return False
        is_read = _is_said(parts) and isinstance(value, Sequence)  # anything else may be read but once
        return not is_read or all(fits(each, parts[0]) for each in value)
    if origin in (dict, Mapping):
        return isinstance(value, Mapping) and all(
            fits(key, parts[0]) and fits(each, parts[1]) for key, each in value.items()
        )
    return _is_one(value, origin or hint)


def _is_one(value: object, kind: Any) -> bool:
    if kind in (int, float):
        return not isinstance(value, bool) and isinstance(value, int if kind is int else int | float)
    if getattr(kind, "_is_protocol", False):
        return all(hasattr(value, name) for name in dir(kind) if not name.startswith("_"))
    return not isinstance(kind, type) or isinstance(value, kind)


def in_words(hint: Any) -> str:
    """Values that a type allows, for a message on another value."""
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return " or ".join(dict.fromkeys(in_words(part) for part in parts))
    if origin is typing.Literal:
        return " or ".join(map(repr, parts))
    if isinstance(hint, TypeVar):
        return in_words(hint.__bound__) if hint.__bound__ else "anything"
    if origin in (dict, Mapping):
        return "a mapping with texts as keys" if parts[0] is str else "a mapping"
    if origin in (tuple, list, Sequence, Iterable):
        return f"a {'tuple' if origin is tuple else 'list'}" + (
            f", each {in_words(parts[0])}" if _is_said(parts) else ""
        )
    if origin is Callable:
        return "a function"
    kind = origin or hint
    return _WORDS.get(kind, f"of type {getattr(kind, '__name__', kind)}")


def _is_said(parts: Sequence[Any]) -> bool:
    return bool(parts) and parts[0] is not Any and not isinstance(parts[0], TypeVar)


def shown(value: object) -> str:
    """A value in a message: its text, cut where it is long."""
    text = repr(value)
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}… ({type(value).__name__})"


class _Unknown:
    """Stands for what only a type checker imports."""

    def __class_getitem__(cls, parts: Any) -> type["_Unknown"]:
        del parts
        return cls


class _Names(dict[str, Any]):
    """The names of a module, and any other."""

    def __missing__(self, name: str) -> Any:
        return getattr(builtins, name, _Unknown)
