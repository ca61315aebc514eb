"""Copies of what a user hands over and may go on to change."""

from typing import Any, TypeVar

import numpy as np

T = TypeVar("T")


def own_copy(value: T) -> T:
    """The value with lists, dicts, sets, tuples and arrays of its own, however deep; other objects are shared. Lists
    and dicts of classes of their own become plain ones.
    """
    return _copied(value)  # type: ignore[no-any-return]


def _copied(value: Any) -> Any:
    kind = type(value)
    if isinstance(value, list):
        return [_copied(each) for each in value]
    if isinstance(value, dict):
        return {name: _copied(each) for name, each in value.items()}
    if kind is tuple:
        return tuple(map(_copied, value))
    return value.copy() if kind in (set, bytearray, np.ndarray) else value
