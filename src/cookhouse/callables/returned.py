"""Numbers that functions of a user's own return, of any library; anything else is refused with the function's name,
file and line.
"""

import inspect
import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from cookhouse.errors import InputError, shown_path

MAX_REWARD = 1e30
"""Largest size of a reward: sums of many, and advantages, still fit into float32."""

_SHOWN_CHARACTERS = 100


def number_of(value: object) -> float | None:
    """The number that a value is: Python's, numpy's, or a tensor without dimensions. None: it is none, or too large."""
    if isinstance(value, str | bytes | complex | np.complexfloating) or getattr(value, "shape", ()) != ():
        return None
    if not hasattr(value, "__float__"):
        return None
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError, RuntimeError):  # such as an integer of 400 digits
        return None


def function_place(function: Callable[..., Any]) -> str:
    """A function or method for people: `Env.step (env.py, line 9)`; of what is written in C the name alone."""
    while isinstance(function, partial):
        function = function.func
    owner, plain = getattr(function, "__self__", None), inspect.unwrap(function)
    if not hasattr(plain, "__code__") and not isinstance(plain, type):  # an object that can be called
        owner, plain = function, vars(type(function)).get("__call__", function)
    name: str = getattr(plain, "__name__", type(plain).__name__)
    is_method = owner is not None and hasattr(plain, "__code__")
    name = f"{type(owner).__name__}.{name}" if is_method else name
    code = getattr(plain, "__code__", None)
    return name if code is None else f"{name} ({shown_path(code.co_filename)}, line {code.co_firstlineno})"


def refused(function: Callable[..., Any], value: object, wants: str, what: str = "") -> InputError:
    """The error of a function that returned what it may not. `what` is the part of it, as in `the reward `."""
    shown = " ".join(f"{value!r:.{_SHOWN_CHARACTERS}}".split())
    return InputError(f"{function_place(function)} returned {what}{shown}; {wants}")


def returned_reward(function: Callable[..., Any], value: object) -> float:
    """The reward that a function gave. Raises `InputError` for what spoils the group, and the weights."""
    number = number_of(value)
    if number is None or not math.isfinite(number) or abs(number) > MAX_REWARD:
        raise refused(function, value, f"a reward is a finite number, at most {MAX_REWARD:g} in size", "the reward ")
    return number


def returned_metrics(function: Callable[..., Any], values: object) -> dict[str, float]:
    """The metrics that a function gave, NaN and infinite ones among them. Raises `InputError` for what are none."""
    if not isinstance(values, Mapping):
        raise refused(
            function, values, "metrics are a dict of numbers by name, {} where there are none", "the metrics "
        )
    numbers = {name: number_of(value) for name, value in values.items()}
    for name, number in numbers.items():
        if number is None or not isinstance(name, str):
            raise refused(function, values[name], "metrics are numbers by name", f"the metric {name!r} = ")
    return {name: number for name, number in numbers.items() if number is not None}


def returned_figures(function: Callable[..., Any], values: object) -> dict[str, float | str | None]:
    """Figures that an evaluator returned: numbers, texts, and None for what could not be measured. Raises `InputError`
    for what is none of these.
    """
    if not isinstance(values, Mapping):
        raise refused(function, values, "an evaluator returns a dict of figures by name, {} where there are none")
    found = {
        name: value if value is None or isinstance(value, str) else number_of(value) for name, value in values.items()
    }
    for name, value in found.items():
        if not isinstance(name, str) or (value is None and values[name] is not None):
            raise refused(function, values[name], "figures are numbers or texts by name", f"the figure {name!r} = ")
    return found
