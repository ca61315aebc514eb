"""A stage: a named function over fields of a run's state. Its signature says what it reads and what it returns."""

import functools
import inspect
import re
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, TypeVar

from cookhouse.callables.arguments import checked
from cookhouse.errors import InputError


@checked
@dataclass(frozen=True, kw_only=True)
class Stage:
    """One named step of a workflow.

    Each parameter of `function` is a field of the state, by name. Its result becomes the field of that type; the parts
    of a tuple become a field each. An async function runs as a step. A plain function fills a slot of the training
    loop: it is called once, when the loop begins, and returns what `cookhouse.training.LoopSlots` takes there.
    """

    name: str
    function: Callable[..., Any]
    needs: tuple[str, ...] = ()
    """Ports, such as `service`, that must have an adapter before anything runs."""
    uses: tuple[str, ...] = ()
    """Ports that are used where they have an adapter."""
    leaves_files: bool = False
    """True if it makes files; a dry run ends before it, as before a stage that needs a port."""
    when: Callable[..., bool] | None = None
    """Condition, over fields of the state by name. Others cannot count on the result of a stage with one."""
    is_optional: bool = False
    """True for a slot that runs at some steps only."""
    parts: tuple[str, ...] = ()
    """Spans within a slot, in their order."""
    doing: str = ""
    """Description for a terminal, such as `reading the data`; default: the name as words."""

    @property
    def progress(self) -> str:
        """Description of the stage's work, in words."""
        return self.doing or self.name.replace("_", " ")

    @property
    def is_slot(self) -> bool:
        """True if it fills a slot of the training loop."""
        return not inspect.iscoroutinefunction(self.function)

    @property
    def may_be_skipped(self) -> bool:
        """True if it does not run in every run, or at every step."""
        return self.is_optional or self.when is not None

    @property
    def reads(self) -> tuple[str, ...]:
        """Names of the fields that it takes."""
        return _parameters(self.function)

    def writes(self, state_class: type[Any]) -> tuple[str, ...]:
        """Names of the fields of a state that its result becomes.

        Raises:
            InputError: the state has no field of such a type, or several.
        """
        if self.is_slot:
            return ()
        found = _hints(self.function).get("return", types.NoneType)
        if found is types.NoneType:
            return ()
        is_tuple = typing.get_origin(found) is tuple
        declared = field_types(state_class)
        parts = typing.get_args(found) if is_tuple else (found,)
        return tuple(self._field_of(part, declared, state_class) for part in parts)

    def misfits(self, declared: Mapping[str, Any]) -> dict[str, str]:
        """Parameters of another type than the field of their name, each with both types in words."""
        hints = _hints(self.function)
        return {
            name: f"{_in_words(hints[name])}, and the state has {_in_words(declared[name])}"
            for name in self.reads
            if name in hints and name in declared and not _is_assignable(declared[name], hints[name])
        }

    def applies(self, state: Any) -> bool:
        """True if its condition holds."""
        return self.when is None or bool(self.when(**_arguments(self.when, state)))

    async def run(self, state: Any) -> None:
        """Call the function, and write its result into the state."""
        result = await self.function(**_arguments(self.function, state))
        names = self.writes(type(state))
        values = result if len(names) > 1 else (result,)
        for name, value in zip(names, values, strict=False):
            setattr(state, name, value)

    def make(self, state: Any) -> Any:
        """Content of the slot."""
        return self.function(**_arguments(self.function, state))

    def _field_of(self, result: Any, declared: Mapping[str, Any], state_class: type[Any]) -> str:
        found = [name for name, hint in declared.items() if hint == result]
        found = found or [name for name, hint in declared.items() if _is_related(hint, result)]
        if len(found) != 1:
            how_many = f"has several: {', '.join(found)}" if found else "has no field of that type"
            known = ", ".join(f"{name}: {_in_words(hint)}" for name, hint in declared.items())
            raise InputError(
                f"stage {self.name} returns {_in_words(result)}, and {state_class.__name__} {how_many}; return what "
                f"one field holds. There is {known}"
            )
        return found[0]


F = TypeVar("F", bound=Callable[..., Any])


@checked
def stage(
    *,
    name: str | None = None,
    needs: tuple[str, ...] = (),
    uses: tuple[str, ...] = (),
    leaves_files: bool = False,
    when: Callable[..., bool] | None = None,
    is_optional: bool = False,
    parts: tuple[str, ...] = (),
    doing: str = "",
) -> Callable[[Callable[..., Any]], Stage]:
    """Makes a stage of a function, by default under the function's name; arguments as the fields of `Stage`."""
    return lambda function: Stage(
        name=name or function.__name__,
        function=function,
        needs=needs,
        uses=uses,
        leaves_files=leaves_files,
        when=when,
        is_optional=is_optional,
        parts=parts,
        doing=doing,
    )


def field_types(state_class: type[Any]) -> Mapping[str, Any]:
    """Type of each field of a state."""
    hints = typing.get_type_hints(state_class)
    return {each.name: hints[each.name] for each in fields(state_class)}


@functools.cache
def _parameters(function: Callable[..., Any]) -> tuple[str, ...]:
    return tuple(inspect.signature(function).parameters)


@functools.cache
def _hints(function: Callable[..., Any]) -> Mapping[str, Any]:
    return typing.get_type_hints(function)


def _arguments(function: Callable[..., Any], state: Any) -> dict[str, Any]:
    return {name: getattr(state, name) for name in _parameters(function)}


def _is_assignable(given: Any, wanted: Any) -> bool:
    """False if no value of the one type is of the other, as far as classes tell."""
    if _is_union(given):
        return all(_is_assignable(part, wanted) for part in typing.get_args(given))
    if _is_union(wanted):
        return any(_is_assignable(given, part) for part in typing.get_args(wanted))
    return not _are_classes(given, wanted) or issubclass(_class(given), _class(wanted))


def _is_related(declared: Any, result: Any) -> bool:
    """True if one of two classes is below the other, or leaves a parameter open: a stage of several workflows names
    what is common to them.
    """
    if typing.get_origin(declared) is not None or typing.get_origin(result) is not None:
        is_open = Any in (*typing.get_args(declared), *typing.get_args(result))
        return is_open and _class(declared) is _class(result)
    if not _are_classes(declared, result):
        return False
    return issubclass(declared, result) or issubclass(result, declared)


def _is_union(hint: Any) -> bool:
    return typing.get_origin(hint) in (typing.Union, types.UnionType)


def _class(hint: Any) -> Any:
    return typing.get_origin(hint) or hint


def _are_classes(*hints: Any) -> bool:
    return all(
        isinstance(_class(hint), type) and hint is not Any and not getattr(_class(hint), "_is_protocol", False)
        for hint in hints
    )


def _in_words(hint: Any) -> str:
    text = str(hint) if typing.get_args(hint) else getattr(hint, "__name__", str(hint))
    return re.sub(r"[\w.]+\.(\w+)", r"\1", text)  # without the modules
