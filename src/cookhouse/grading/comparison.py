"""Comparison of what a program printed or returned with what a test expects.

Both functions read text that an untrusted process wrote, so neither builds sets or dictionaries from it (a few thousand
numbers with the same hash would take minutes), and both take time in proportion to its length.
"""

import decimal
import json
import math
import re
from typing import Any

from cookhouse.grading.harness.plain import dumps

_NUMBER = re.compile(r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]{1,6})?")
_INTEGER = re.compile(r"[-+]?[0-9]+")
_TEXT_TOLERANCE = 1e-6
_VALUE_TOLERANCE = 1e-5  # that of LeetCode, where most functions come from
_KINDS = {"tuple": "list", "deque": "list", "iterator": "list", "frozenset": "set", "bool": "int"}
_NUMBERS = ("int", "float", "Decimal")


def is_same_text(printed: str, expected: str) -> bool:
    """Line by line without white space at the ends; words that are numbers may be written differently (1.0 and 1).

    An expected float, written with a point or an exponent, allows an error of 1e-6, absolute or relative, as judges of
    programming contests do; an integer allows none.
    """
    ours, theirs = (text.strip().splitlines() for text in (printed, expected))
    return len(ours) == len(theirs) and all(map(_is_same_line, ours, theirs))


def is_same_value(printed: str, expected: Any) -> bool:
    """`printed` is JSON as the harness writes it. Values equal as in Python, but for three things: a tuple equals a
    list; where all expected keys are texts, as JSON's are, a key equals the text that JSON makes of it; an expected
    float allows an error of 1e-5, absolute or relative.
    """
    try:
        return _is_same(json.loads(printed), json.loads(dumps(expected)))
    except (ValueError, TypeError, AttributeError, ArithmeticError, RecursionError):
        return False


def _is_same_line(ours: str, theirs: str) -> bool:
    left, right = ours.split(), theirs.split()
    return len(left) == len(right) and all(map(_is_same_word, left, right))


def _is_same_word(ours: str, theirs: str) -> bool:
    if ours == theirs:
        return True
    if not _NUMBER.fullmatch(ours) or not _NUMBER.fullmatch(theirs):
        return False
    if _INTEGER.fullmatch(theirs):
        return decimal.Decimal(ours) == decimal.Decimal(theirs)
    return _is_near(float(ours), float(theirs), _TEXT_TOLERANCE)


def _is_near(ours: float, theirs: float, tolerance: float) -> bool:
    return math.isfinite(ours) and math.isclose(ours, theirs, rel_tol=tolerance, abs_tol=tolerance)


def _is_same(ours: Any, theirs: Any) -> bool:
    (kind, body), (their_kind, their_body) = _taken_apart(ours), _taken_apart(theirs)
    if kind in _NUMBERS and their_kind in _NUMBERS:
        left, right = _number(kind, body), _number(their_kind, their_body)
        if their_kind == "float" and math.isfinite(right) and _is_near(float(left), right, _VALUE_TOLERANCE):
            return True
        return bool(left == right)
    if kind != their_kind:
        return False
    if kind in ("list", "complex"):
        return len(body) == len(their_body) and all(map(_is_same, body, their_body))
    if kind == "set":
        return len(body) == len(their_body) and all(map(_is_same, _in_order(body), _in_order(their_body)))
    if kind == "dict":
        return len(body) == len(their_body) and _are_same_items(body, their_body)
    return bool(body == their_body)


def _are_same_items(ours: list[Any], theirs: list[Any]) -> bool:
    """Items of two dictionaries of one length."""
    are_texts = all(isinstance(key, str) for key, _ in theirs)
    left, right = (
        sorted(((_canonical(_key_text(key) if are_texts else key), item) for key, item in items), key=lambda it: it[0])
        for items in (ours, theirs)
    )
    return all(ours[0] == theirs[0] and _is_same(ours[1], theirs[1]) for ours, theirs in zip(left, right, strict=True))


def _key_text(key: Any) -> Any:
    """Text that JSON makes of a key; others than texts, numbers and None are left as they are."""
    kind, body = _taken_apart(key)
    if kind in ("int", "float", "NoneType"):
        return json.dumps(_number(kind, body) if kind == "int" and isinstance(body, str) else body)
    return key


def _in_order(items: list[Any]) -> list[Any]:
    """Of a set, numbers by value and then others by their text."""

    def key(item: Any) -> tuple[bool, Any, str]:
        kind, body = _taken_apart(item)
        return (False, _number(kind, body), "") if kind in _NUMBERS else (True, 0, _canonical(item))

    return sorted(items, key=key)


def _taken_apart(data: Any) -> tuple[str, Any]:
    """The kind of a value, and what it is made of."""
    if isinstance(data, dict):
        ((kind, body),) = data.items()
        if kind == "same" or (kind == "Fraction" and body[1] == 1):
            return _taken_apart(body if kind == "same" else body[0])
        return _KINDS.get(kind, str(kind)), body
    if isinstance(data, float) and not math.isfinite(data):
        raise ValueError("the harness writes such floats as text")
    kind = type(data).__name__
    return _KINDS.get(kind, kind), data


def _number(kind: str, body: Any) -> Any:
    if kind == "int":
        return int(body, 16) if isinstance(body, str) else int(body)
    if kind == "float":
        return float(body)
    return decimal.Decimal(body)


def _canonical(data: Any) -> str:
    """JSON that is the same for values that are equal: numbers by value, and what has no order sorted."""
    if not isinstance(data, (dict, list)):
        return json.dumps(int(data) if _is_whole(data) else data)
    kind, body = _taken_apart(data)
    if kind == "list":
        return f"[{','.join(map(_canonical, body))}]"
    if kind == "set":
        return f'{{"set":[{",".join(sorted(map(_canonical, body)))}]}}'
    if kind == "dict":
        items = sorted(f"[{_canonical(key)},{_canonical(item)}]" for key, item in body)
        return f'{{"dict":[{",".join(items)}]}}'
    return json.dumps(data)


def _is_whole(data: Any) -> bool:
    return isinstance(data, bool) or (isinstance(data, float) and data.is_integer())
