r"""Answers that are one number: the forms it may be written in, and the unit that may stand beside it.

A form is an integer, decimal, fraction, mixed number, percentage, repeating decimal, or decimal times a power of ten.
`4 + 1`, `\sqrt{25}` and `2^3` are none: they leave the computing undone. A unit has
one form: `12 cm`, `12\text{ centimeters}` and `12厘米` are the same.
"""

import dataclasses
import fractions
import re

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
    sign = _SIGN.match(text)
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
    scale = _SCALES.get(words[-1].lower()) if len(words) > 1 else None
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


def _table(text: str) -> dict[str, str]:
    """Pairs `name=value`; `~` is a blank."""
    pairs = (pair.partition("=") for pair in text.split())
    return {name.replace("~", " "): value.replace("~", " ") for name, _, value in pairs}


_CURRENCIES = _table(
    r"""
    \$=dollar €=euro £=pound~sterling ¥=yen|yuan ₹=rupee ₩=won ₽=ruble ₺=lira ₫=dong ₱=peso ฿=baht ₪=shekel
    ₴=hryvnia ¢=cent US\$=dollar USD=dollar EUR=euro GBP=pound~sterling CNY=yuan RMB=yuan JPY=yen INR=rupee Rs.=rupee
    Rs=rupee KRW=won CHF=franc
    """
)
_CURRENCY = "|".join(re.escape(sign) for sign in sorted(_CURRENCIES, key=len, reverse=True))
CJK = "\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af"
"""Letters of Chinese, Japanese and Korean, as the inside of a class of characters."""
CJK_SCALES = {
    word: int(size)
    for word, size in _table(
        """
    百=100 千=1000 万=10000 萬=10000 亿=100000000 億=100000000 백=100 천=1000 만=10000 억=100000000
    """
    ).items()
}
_SCALES = CJK_SCALES | {
    word: int(size)
    for word, size in _table(
        """
    dozen=12 gross=144 hundred=100 thousand=1000 million=1000000 billion=1000000000 trillion=1000000000000
    hundreds=100 thousands=1000 millions=1000000 billions=1000000000 dozens=12 lakh=100000 crore=10000000 mil=1000
    mille=1000 tausend=1000 millones=1000000 millionen=1000000 milliard=1000000000 milliards=1000000000
    milliarden=1000000000 milhões=1000000 milioni=1000000 тысяч=1000 миллион=1000000 миллиона=1000000
    миллионов=1000000
    """
    ).items()
}
_SCALE = rf"(?: (?:{'|'.join(sorted(_SCALES, key=len, reverse=True))})(?![^\W\d_]))?"
_SIGN = re.compile(rf"(?P<sign>[-+]?) ?(?P<currency>{_CURRENCY})? ?(?P<second>-?) ?")
_LETTERS = r"[^\W\d_]+"
_TEXT_UNIT = re.compile(r"(?P<body>.*\S) ?\\text ?\{(?P<unit>[^{}\\]*)\} ?(?P<power>\^ ?\{?[23]\}?)?")
_DEGREE = r"\^ ?\{ ?\\circ ?\}|\^ ?\\circ|°|\\degree"
_SYMBOL_UNIT = re.compile(
    rf"(?P<body>.*[\d}}.)]) ?(?:(?P<percent>%|\\permil)"
    rf"|(?P<degree>{_DEGREE}) ?(?:\\text ?\{{ ?)?(?P<scale>[CFK]?) ?\}}?"
    rf"|(?P<money>{_CURRENCY}))"
)
_WORD_UNIT = re.compile(
    rf"(?P<body>.*?(?:[\d}}).]{_SCALE}|\\pi(?= )))(?P<space> ?)"
    rf"(?P<unit>{_LETTERS}\.?(?:(?: |-|/| / |\b){_LETTERS}\.?){{0,4}})(?P<power>\^ ?\{{?[23]\}}?)?",
)
_SYNONYMS = _table(
    """
    mm=millimeter cm=centimeter dm=decimeter m=meter km=kilometer in=inch ft=foot feet=foot yd=yard mi=mile
    metre=meter centimetre=centimeter millimetre=millimeter kilometre=kilometer mg=milligram g=gram kg=kilogram
    lb=pound oz=ounce s=second sec=second min=minute h=hour hr=hour yr=year ml=milliliter l=liter litre=liter
    mph=mile~per~hour kmh=kilometer~per~hour kph=kilometer~per~hour deg=degree °=degree circ=degree rad=radian
    celsiu=c fahrenheit=f pct=percent %=percent percentage=percent usd=dollar buck=dollar eur=euro cny=yuan rmb=yuan
    jpy=yen inr=rupee women=woman men=man people=person children=child am=am pm=pm inche=inch boxe=box gla=glass
    sq=square cu=cubic st= nd= rd= th= 个= 個= 개= つ= 元=yuan 圆=yuan 块=yuan 块钱=yuan 人民币=yuan 美元=dollar
    欧元=euro 英镑=pound~sterling 日元=yen 円=yen 원=won 毫米=millimeter 厘米=centimeter 公分=centimeter
    分米=decimeter 米=meter 千米=kilometer 公里=kilometer 毫克=milligram 克=gram 千克=kilogram 公斤=kilogram 吨=ton
    毫升=milliliter 升=liter 度=degree 秒=second 分钟=minute 分鐘=minute 分間=minute 分=minute|point|cent 小时=hour
    小時=hour 時間=hour 시간=hour 天=day 日=day 周=week 星期=week 个月=month 月=month 年=year 人=person 名=person
    명=person 미터=meter
    """
)
_NO_UNITS = frozenset(  # words after a number that change it, or leave it open
    (
        *("or", "and", "not", "to", "plus", "minus", "times", "is", "are", "if", "pi", "sqrt", "root", "squared"),
        *("cubed", "factorial", "mod", "infinity", "than", "less", "more", "over", "divided", "by", "half", "halves"),
        *("third", "thirds", "quarter", "quarters", "fourth", "fourths", "fifth", "fifths", "sixth", "sixths"),
        *("seventh", "sevenths", "eighth", "eighths", "ninth", "ninths", "tenth", "tenths", "hundredth"),
        *("hundredths", "thousandth", "thousandths", "choose", "base", "sin", "cos", "tan", "log", "ln", "exp"),
        *("cot", "csc", "repeating", "recurring", "oder", "und", "ou", "et", "o", "y", "или", "и"),
    )
)
_NO_CJK_UNITS = re.compile(
    "[或和与及且到至不无無非负負正多少余餘约約半折兆万萬亿億만억]|以[上下内外內]|[大小]于|左右|分之|百分|[加减減乘除等]于?|第|割|이상|이하|또는|배"
)


def split_unit(text: str) -> tuple[str, str]:
    """An answer without the unit at its end or the currency before it, and the unit in a normal form, "" for none."""
    if match := _TEXT_UNIT.fullmatch(text):
        unit = _unit_name(match["unit"], match["power"])
    elif match := _SYMBOL_UNIT.fullmatch(text):
        unit = _symbol_name(match)
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
    """Units are the same where both sides name one; a side without leaves it to the question. `|` stands between
    meanings of one sign.
    """
    if {ours, theirs} & {"", "degree"}:
        return not ours or not theirs or ours.split(" ")[0] == theirs.split(" ")[0]
    return not set(ours.split("|")).isdisjoint(theirs.split("|"))


def _symbol_name(match: re.Match[str]) -> str | None:
    if match["percent"]:
        return "percent" if match["percent"] == "%" else None
    if match["money"]:
        return _CURRENCIES[match["money"]]
    return f"degree {match['scale'].lower()}".strip()


def _may_be_unit(words: str, space: str) -> bool:
    """True if letters after a number are a unit, not a variable or a function."""
    if re.search(f"[{CJK}]", words):
        return words in _SYNONYMS or (_NO_CJK_UNITS.search(words) is None and words[0] not in CJK_SCALES)
    if words in ("G", "M"):  # a thousand millions, a million
        return False
    parts = re.split(r"[ /-]+", words.lower().replace(".", ""))
    if any(part in _NO_UNITS or part in _SCALES for part in parts):
        return False
    is_known = all(part in _SYNONYMS for part in parts) and len(words) > 1
    return is_known or (bool(space) and all(len(part) > 2 or part in _SYNONYMS or not part.isascii() for part in parts))


def _unit_name(text: str, power: str | None) -> str | None:
    """Singular, unabbreviated, `square` and `cubic` as powers; "" for `units`, None for what cannot be a unit."""
    if re.search(f"[{CJK}]", text):
        if not _may_be_unit(text.strip(), ""):
            return None
        text = re.sub("^[个個](?=.)(?!月)", "", text.strip())
        text = text.replace("平方", "square ").replace("立方", "cubic ").replace("每", "/").replace("/时", "/小时")
    words = text.lower().replace(".", "").replace("\\", "").replace("/", " per ").replace("-", " ").split()
    if any(word in _NO_UNITS or word in _SCALES or any(letter.isdigit() for letter in word) for word in words):
        return None
    names = [_name(word) for word in words]
    exponent = "".join(letter for letter in power or "" if letter.isdigit())
    for name, value in (("square", "2"), ("cubic", "3")):
        if name in names:
            names.remove(name)
            exponent = value
    unit = " ".join(filter(None, names))
    return "" if unit in ("unit", "") else unit + exponent


def _name(word: str) -> str:
    singular = word.removesuffix("s")
    return _SYNONYMS.get(word, _SYNONYMS.get(singular, singular))
