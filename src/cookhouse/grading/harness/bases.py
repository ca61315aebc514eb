"""Numbers that name their base: `101_2`, `2516 (base 8)`."""

import re

from .numerals import read_number

Based = tuple[int, int]
"""A base, and the value of a number in it."""

_BASED = re.compile(
    r"\(?(?P<digits>[0-9A-Za-z]+)\)?(?: ?_ ?(?:\{ ?\(?(?P<braced>\d{1,2})\)? ?\}|(?P<bare>\d))"
    r"|,? ?\(?(?:in )?base[ -](?P<said>\d{1,2}|[a-z]+)\)?|_ ?\{? ?(?:\\text ?\{)? ?(?P<word>[a-z]+) ?\}{1,2})"
)
_BASES = ("two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
_DIGITS_36 = "0123456789abcdefghijklmnopqrstuvwxyz"
_IN_EXPRESSION = re.compile(r"(?<![A-Za-z0-9_}.])(\d+) ?_ ?(?:\{ ?(\d{1,2}) ?\}|(\d))")


def read_based(text: str) -> Based | None:
    """The base of a number that names one, and its value."""
    match = _BASED.fullmatch(text)
    if match is None:
        return None
    named = match["braced"] or match["bare"] or match["said"] or match["word"]
    base = int(named) if named.isdigit() else _BASES.index(named) + 2 if named in _BASES else 0
    digits = match["digits"].lower()
    is_name = not any(letter.isdigit() for letter in digits) and len(digits) < 2  # `a_{12}`
    value = None if is_name or not 2 <= base <= 36 else _value(digits, base)
    return None if value is None else (base, value)


def is_same_in_base(our_base: Based | None, ours: str, their_base: Based | None, theirs: str) -> bool:
    """Equal in base and value. Bare digits are in the base of the expected number, which the question says."""
    if our_base and their_base:
        return our_base == their_base
    if their_base:
        digits = r"\d+" if their_base[0] <= 10 else r"[\dA-Za-z]+"
        return bool(re.fullmatch(digits, ours)) and _value(ours, their_base[0]) == their_base[1]
    number = read_number(theirs)
    return our_base is not None and our_base[0] == 10 and number is not None and number.value == our_base[1]


def _value(digits: str, base: int) -> int | None:
    digits = digits.lower()
    return int(digits, base) if set(digits) <= set(_DIGITS_36[:base]) else None


def in_tens(text: str) -> str:
    """An expression whose numbers with a base stand in base ten."""

    def ten(match: re.Match[str]) -> str:
        base = int(match[2] or match[3])
        value = _value(match[1], base) if 2 <= base <= 36 else None
        return match[0] if value is None else str(value)

    return _IN_EXPRESSION.sub(ten, text)
