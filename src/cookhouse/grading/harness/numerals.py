r"""Answers that are one number: the forms it may be written in.

A form is an integer, decimal, fraction, mixed number, percentage, repeating decimal, or decimal times a power of ten.
`4 + 1`, `\sqrt{25}` and `2^3` are none: they leave the computing undone.
"""

import dataclasses
import fractions
import re

from .units import SCALES, SIGN, are_compatible

_GROUPS = r"\d{1,3}(?:(?:,\d{3}){1,12}|(?: \d{3}){1,12}|(?:'\d{3}){1,12}|(?:_\d{3}){1,12})(?!\d)"
_DIGITS = rf"(?:{_GROUPS}|\d{{1,40}})(?:\.\d{{0,40}})?|\.\d{{1,40}}|\d{{1,3}}(?:\.\d{{3}}){{2,12}}(?:,\d{{1,40}})?"
_SIGNED = rf"[-+]? ?(?:{_DIGITS})"
_FRACTION = rf"\\frac ?(?:\{{ ?(?P<top>{_SIGNED}) ?\}}|(?P<t>\d)) ?(?:\{{ ?(?P<low>{_SIGNED}) ?\}}|(?P<l>\d))"
_POWER = r"(?:\^ ?(?:\{ ?(?P<braced>[-+]? ?\d{1,3}) ?\}|(?P<bare>\d)))"
_MAGNITUDE = re.compile(
    rf"(?:(?P<whole>\d{{1,40}}) ?)?{_FRACTION}"
    rf"|(?:(?P<mixed>\d{{1,40}}) )?(?P<over>{_DIGITS}) ?/ ?(?P<under>{_DIGITS})"
    rf"|(?:(?P<factor>{_DIGITS}) ?(?:\\times|\\cdot|\*|x|X) ?)?10 ?{_POWER}"
    rf"|(?P<decimal>{_DIGITS})(?:[eE](?P<exponent>[-+]?\d{{1,3}}))?"
)
_DOTTED = r"\\dot ?(?:\{ ?\d ?\}|\d)"
_REPEATING = re.compile(
    r"(?P<whole>\d{0,40})\.(?P<first>\d{0,40})"
    r"(?:\\(?:overline|bar) ?(?:\{ ?(?P<bar>\d{1,40}) ?\}|(?P<one>\d))|\((?P<round>\d{1,40})\)"
    rf"|(?P<dots>{_DOTTED}(?:(?:\d|{_DOTTED})*{_DOTTED})?)|(?P<shown>) ?(?:\\ldots|repeating|recurring))"
    r"(?: ?\\ldots)?"
)
_WRAPPED = re.compile(r"\((?P<round>[^(),]*)\)|\{(?P<brace>[^{},]*)\}|\((?P<nested>\\frac ?\{[^{}]*\} ?\{[^{}]*\})\)")
_MIN_PLACES = 6  # decimals of so many places may stand for what they round
_ROUNDING = fractions.Fraction(1, 2000)  # of a value, at most


@dataclasses.dataclass(frozen=True, kw_only=True)
class Numeral:
    """A value exactly as written, and the decimal places of a decimal."""

    value: fractions.Fraction
    places: int | None


def read_number(text: str) -> Numeral | None:
    """A number without unit; None for anything else."""
    sign = SIGN.match(text)
    start = sign.end() if sign else 0
    if sign is None or sign["currency"] or (sign["sign"] and sign["second"]):
        return None
    rest = text[start:]
    if sign["sign"] and (wrapped := _WRAPPED.fullmatch(rest)):
        rest = (wrapped["round"] or wrapped["brace"] or wrapped["nested"] or "").strip()
    size = _read_size(rest)
    if size is None:
        return None
    negative = "-" in (sign["sign"], sign["second"])
    return dataclasses.replace(size, value=-size.value if negative else size.value)


def _read_size(text: str) -> Numeral | None:
    """A number without sign."""
    words = text.split(" ")
    scale = SCALES.get(words[-1].lower()) if len(words) > 1 else None
    if scale is not None:
        text = " ".join(words[:-1])
    try:
        if repeating := _REPEATING.fullmatch(text):
            value = _repeating(repeating)
            return None if value is None else Numeral(value=value * (scale or 1), places=None)
        match = _MAGNITUDE.fullmatch(text)
        if match is None:
            return None
        value = _value(match) * (scale or 1)
    except ZeroDivisionError:
        return None
    decimals = match["decimal"].partition(".")[2] if match["decimal"] and scale is None else None
    return Numeral(value=value, places=len(decimals) if decimals else None)


def is_same_number(ours: Numeral, our_unit: str, theirs: Numeral, their_unit: str) -> bool:
    """Equal in value and unit. A percentage also equals its number of percent, which a question may ask for."""
    if not are_compatible(our_unit, their_unit):
        return False
    left, right = ours, theirs
    if (our_unit == "percent") != (their_unit == "percent"):
        if our_unit == "percent":
            left = _scaled(ours)
        else:
            right = _scaled(theirs)
        if is_close(left, right):
            return True
        if our_unit == "percent" and abs(theirs.value) <= 1:  # 0.5 is no answer to `how many percent`
            return False
    return is_close(ours, theirs)


def is_close(ours: Numeral, theirs: Numeral) -> bool:
    """Equal, or one a decimal of at least six places that the other rounds to, and not a small part of it."""
    if ours.value == theirs.value:
        return True
    for decimal, other in ((ours, theirs), (theirs, ours)):
        if decimal.places is not None and decimal.places >= _MIN_PLACES and other.places is None:
            is_rounded = round(other.value, decimal.places) == decimal.value
            return is_rounded and abs(other.value - decimal.value) <= _ROUNDING * abs(other.value)
    return False


def _scaled(percentage: Numeral) -> Numeral:
    places = None if percentage.places is None else percentage.places + 2
    return Numeral(value=percentage.value / 100, places=places)


def _value(match: re.Match[str]) -> fractions.Fraction:
    found = match.groupdict()
    if found["over"] is not None:
        return _mixed(found["mixed"], _decimal(found["over"]) / _decimal(found["under"]))
    if found["braced"] is not None or found["bare"] is not None:
        power = int((found["braced"] or found["bare"]).replace(" ", ""))
        return _decimal(found["factor"] or "1") * fractions.Fraction(10) ** power
    if found["decimal"] is not None:
        return _decimal(found["decimal"]) * fractions.Fraction(10) ** int(found["exponent"] or 0)
    return _mixed(found["whole"], _decimal(found["top"] or found["t"]) / _decimal(found["low"] or found["l"]))


def _repeating(match: re.Match[str]) -> fractions.Fraction | None:
    """The value of a decimal whose period is marked, or shown twice or more before dots."""
    first, period = match["first"], match["bar"] or match["one"] or match["round"]
    if match["dots"]:
        period = re.sub(r"\D", "", match["dots"])
    if match["shown"] is not None:
        found = re.search(r"(\d+?)\1+$", first)
        if found is None and match[0].endswith("ing"):
            found = re.search(r"(\d)$", first)
        if found is None:
            return None
        first, period = first[: found.start()], found[1]
    assert period is not None
    head = int(f"{match['whole'] or 0}{first}")
    repeated = fractions.Fraction(int(period), int("9" * len(period)))
    return (head + repeated) * fractions.Fraction(1, int(f"1{'0' * len(first)}"))


def _mixed(whole: str | None, part: fractions.Fraction) -> fractions.Fraction:
    if whole is not None and not 0 <= part < 1:
        raise ZeroDivisionError  # no mixed number
    return part + int(whole or 0)


def _decimal(text: str) -> fractions.Fraction:
    if text.count(".") > 1:  # groups by dots
        text = text.replace(".", "").replace(",", ".")
    return fractions.Fraction(re.sub("[, '_]", "", text))
