r"""Answers that are one number: the forms it may be written in, and the unit that may stand beside it.

A form is an integer, decimal, fraction, mixed number, percentage, or decimal times a power of ten. `4 + 1`, `\sqrt{25}`
and `2^3` are none: they leave the computing undone.
"""

import dataclasses
import fractions
import re

_DIGITS = r"(?:\d{1,3}(?:,\d{3}){1,12}|\d{1,40})(?:\.\d{0,40})?|\.\d{1,40}"
_SIGNED = rf"[-+]? ?(?:{_DIGITS})"
_FRACTION = rf"\\frac ?(?:\{{ ?(?P<top>{_SIGNED}) ?\}}|(?P<t>\d)) ?(?:\{{ ?(?P<low>{_SIGNED}) ?\}}|(?P<l>\d))"
_POWER = r"(?:\^ ?(?:\{ ?(?P<braced>[-+]?\d{1,3}) ?\}|(?P<bare>\d)))"
_MAGNITUDE = re.compile(
    rf"(?:(?P<whole>\d{{1,40}}) ?)?{_FRACTION}"
    rf"|(?:(?P<mixed>\d{{1,40}}) )?(?P<over>{_DIGITS}) ?/ ?(?P<under>{_DIGITS})"
    rf"|(?:(?P<factor>{_DIGITS}) ?(?:\\times|\\cdot|\*|x) ?)?10 ?{_POWER}"
    rf"|(?P<decimal>{_DIGITS})(?:[eE](?P<exponent>[-+]?\d{{1,3}}))?"
)
_SIGN = re.compile(r"(?P<sign>[-+]?) ?(?P<currency>\\\$|€|£|¥)? ?(?P<second>-?) ?")
_CURRENCIES = {"\\$": "dollar", "€": "euro", "£": "pound sterling", "¥": "yen"}
_TEXT_UNIT = re.compile(r"(?P<body>.*\S) ?\\text ?\{(?P<unit>[^{}\\]*)\} ?(?P<power>\^ ?\{?[23]\}?)?")
_SYMBOL_UNIT = re.compile(r"(?P<body>.*[\d}.)]) ?(?P<unit>%|\^ ?\{ ?\\circ ?\}|\^ ?\\circ|°)")
_WORD_UNIT = re.compile(
    r"(?P<body>.*?[\d}).])(?P<space> ?)(?P<unit>[A-Za-z]+\.?(?:(?: |-|/| / |\b)[A-Za-z]+\.?){0,4})"
    r"(?P<power>\^ ?\{?[23]\}?)?"
)
_SYNONYMS = {
    "mm": "millimeter",
    "cm": "centimeter",
    "km": "kilometer",
    "m": "meter",
    "metre": "meter",
    "in": "inch",
    "ft": "foot",
    "feet": "foot",
    "yd": "yard",
    "mi": "mile",
    "centimetre": "centimeter",
    "kg": "kilogram",
    "mg": "milligram",
    "g": "gram",
    "lb": "pound",
    "oz": "ounce",
    "kilometre": "kilometer",
    "s": "second",
    "sec": "second",
    "min": "minute",
    "h": "hour",
    "hr": "hour",
    "yr": "year",
    "ml": "milliliter",
    "mph": "mile per hour",
    "kmh": "kilometer per hour",
    "kph": "kilometer per hour",
    "l": "liter",
    "litre": "liter",
    "usd": "dollar",
    "buck": "dollar",
    "deg": "degree",
    "°": "degree",
    "circ": "degree",
    "pct": "percent",
    "%": "percent",
    "percentage": "percent",
    "women": "woman",
    "men": "man",
    "people": "person",
    "children": "child",
    "am": "am",
    "pm": "pm",
    "inche": "inch",
    "boxe": "box",
    "gla": "glass",
    "sq": "square",
    "cu": "cubic",
}
_SCALES = {"dozen": 12, "hundred": 100, "thousand": 1000, "million": 10**6, "billion": 10**9, "trillion": 10**12}
_NO_UNITS = frozenset(  # words after a number that change it, or leave it open
    (
        *("or", "and", "not", "to", "plus", "minus", "times", "is", "are", "if", "pi", "sqrt", "root", "squared"),
        *("cubed", "factorial", "mod", "infinity", "than", "less", "more", "over", "divided", "by", "half", "halves"),
        *("third", "thirds", "quarter", "quarters", "fourth", "fourths", "fifth", "fifths", "sixth", "sixths"),
        *("seventh", "sevenths", "eighth", "eighths", "ninth", "ninths", "tenth", "tenths", "hundredth"),
        *("hundredths", "thousandth", "thousandths", "choose", "base", "sin", "cos", "tan", "log", "ln", "exp"),
        *("cot", "csc"),
    )
)
_MIN_PLACES = 6  # decimals of so many places may stand for what they round


@dataclasses.dataclass(frozen=True, kw_only=True)
class Numeral:
    """A value exactly as written, and the decimal places of a decimal."""

    value: fractions.Fraction
    places: int | None


def split_unit(text: str) -> tuple[str, str]:
    """An answer without the unit at its end or the currency before it, and the unit in a normal form, "" for none."""
    if match := _TEXT_UNIT.fullmatch(text):
        unit = _unit_name(match["unit"], match["power"])
    elif match := _SYMBOL_UNIT.fullmatch(text):
        unit = _unit_name("percent" if match["unit"] == "%" else "degree", None)
    elif (match := _WORD_UNIT.fullmatch(text)) and _may_be_unit(match["unit"], match["space"]):
        unit = _unit_name(match["unit"], match["power"])
    else:
        match, unit = None, ""
    if match and unit is None:
        return text, ""
    body = match["body"].strip() if match else text
    currency = _SIGN.match(body)
    if currency and currency["currency"]:
        body = body[: currency.start("currency")] + body[currency.end("currency") :].lstrip()
        named = _CURRENCIES[currency["currency"]]
        return body, named if unit in ("", named) else f"{named} {unit}"
    return body, unit or ""


def are_compatible(ours: str, theirs: str) -> bool:
    """Units are the same where both sides name one; a side without leaves it to the question."""
    return not ours or not theirs or ours == theirs


def read_number(text: str) -> Numeral | None:
    """A number without unit; None for anything else."""
    sign = _SIGN.match(text)
    start = sign.end() if sign else 0
    words = text[start:].split(" ")
    scale = _SCALES.get(words[-1].lower()) if len(words) > 1 else None
    match = _MAGNITUDE.fullmatch(text[start:] if scale is None else " ".join(words[:-1]))
    if match is None or sign is None or sign["currency"] or (sign["sign"] and sign["second"]):
        return None
    try:
        value = _value(match) * (scale or 1)
    except ZeroDivisionError:
        return None
    negative = "-" in (sign["sign"], sign["second"])
    decimals = match["decimal"].partition(".")[2] if match["decimal"] and scale is None else None
    return Numeral(value=-value if negative else value, places=len(decimals) if decimals else None)


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
    """Equal, or one a decimal of at least six places that the other rounds to."""
    if ours.value == theirs.value:
        return True
    for decimal, other in ((ours, theirs), (theirs, ours)):
        if decimal.places is not None and decimal.places >= _MIN_PLACES and other.places is None:
            return round(other.value, decimal.places) == decimal.value
    return False


def _scaled(percentage: Numeral) -> Numeral:
    places = None if percentage.places is None else percentage.places + 2
    return Numeral(value=percentage.value / 100, places=places)


def _value(match: re.Match[str]) -> fractions.Fraction:
    found = match.groupdict()
    if found["over"] is not None:
        return _mixed(found["mixed"], _decimal(found["over"]) / _decimal(found["under"]))
    if found["braced"] is not None or found["bare"] is not None:
        power = int(found["braced"] or found["bare"])
        return _decimal(found["factor"] or "1") * fractions.Fraction(10) ** power
    if found["decimal"] is not None:
        return _decimal(found["decimal"]) * fractions.Fraction(10) ** int(found["exponent"] or 0)
    return _mixed(found["whole"], _decimal(found["top"] or found["t"]) / _decimal(found["low"] or found["l"]))


def _mixed(whole: str | None, part: fractions.Fraction) -> fractions.Fraction:
    if whole is not None and not 0 <= part < 1:
        raise ZeroDivisionError  # no mixed number
    return part + int(whole or 0)


def _decimal(text: str) -> fractions.Fraction:
    return fractions.Fraction(text.replace(",", "").replace(" ", ""))


def _may_be_unit(words: str, space: str) -> bool:
    """Whether letters after a number are a unit, not a variable or a function."""
    parts = re.split(r"[ /-]+", words.lower().replace(".", ""))
    if any(part in _NO_UNITS or part in _SCALES for part in parts):
        return False
    is_known = all(part in _SYNONYMS for part in parts) and len(words) > 1
    return is_known or (bool(space) and all(len(part) > 2 or part in _SYNONYMS for part in parts))


def _unit_name(text: str, power: str | None) -> str | None:
    """Singular, unabbreviated, `square` and `cubic` as powers; "" for `units`, None for what cannot be a unit."""
    words = text.lower().replace(".", "").replace("\\", "").replace("/", " per ").replace("-", " ").split()
    if any(word in _NO_UNITS or word in _SCALES or any(letter.isdigit() for letter in word) for word in words):
        return None
    names = [_SYNONYMS.get(word) or _SYNONYMS.get(word.removesuffix("s")) or word.removesuffix("s") for word in words]
    exponent = "".join(letter for letter in power or "" if letter.isdigit())
    for name, value in (("square", "2"), ("cubic", "3")):
        if name in names:
            names.remove(name)
            exponent = value
    unit = " ".join(names)
    return "" if unit in ("unit", "") else unit + exponent
