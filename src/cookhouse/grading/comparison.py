"""Whether what a program printed or returned is what a test expects.

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
_TOLERANCE = 1e-6


def is_same_text(printed: str, expected: str) -> bool:
    """Line by line without white space at the ends; words that are numbers may be written differently (1.0 and 1).

    An expected float, written with a point or an exponent, allows an error of 1e-6, absolute or relative, as judges of
    programming contests do; an integer allows none.
    """
    ours, theirs = (text.strip().splitlines() for text in (printed, expected))
    return len(ours) == len(theirs) and all(map(_is_same_line, ours, theirs))


def is_same_value(printed: str, expected: Any) -> bool:
    """`printed` is JSON as the harness writes it; a tuple equals a list, otherwise values equal as in Python."""
    try:
        return _canonical(json.loads(printed)) == _canonical(json.loads(dumps(expected)))
    except (ValueError, TypeError, AttributeError, RecursionError):
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
    left, right = float(ours), float(theirs)
    return math.isfinite(left) and math.isclose(left, right, rel_tol=_TOLERANCE, abs_tol=_TOLERANCE)


def _canonical(data: Any) -> str:
    """JSON that is the same for values that are equal: numbers by value, and what has no order sorted."""
    if isinstance(data, list):
        return f"[{','.join(map(_canonical, data))}]"
    if not isinstance(data, dict):
        return json.dumps(int(data) if _is_whole(data) else data)
    ((kind, body),) = data.items()
    if kind in ("tuple", "list", "deque", "iterator", "same"):
        return _canonical(body)
    if kind in ("set", "frozenset"):
        return f'{{"set":[{",".join(sorted(map(_canonical, body)))}]}}'
    if kind == "dict":
        items = sorted(f"[{_canonical(key)},{_canonical(item)}]" for key, item in body)
        return f'{{"dict":[{",".join(items)}]}}'
    return json.dumps(data)


def _is_whole(data: Any) -> bool:
    return isinstance(data, bool) or (isinstance(data, float) and data.is_integer())
