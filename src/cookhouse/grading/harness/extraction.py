r"""Equality of two mathematical answers: notation and structure here, algebra by what the caller passes.

Answers are taken apart into tuples, intervals, sets, lists, unions and matrices, and their items compared as numbers,
as words or by algebra. Where a plain number is expected the answer must be a number form (see `numerals`), not an
expression with that value. Words are compared as words, never as products of their letters.
"""

import dataclasses
import itertools
import re
from collections.abc import Callable, Sequence

from .numerals import are_compatible, is_same_number, read_number, split_unit
from .spelling import spelled

Algebra = Callable[[str, str], bool]

_SEPARATOR = re.compile(r"[,;]| and | or |\\text ?\{ ?,? ?(?:and|or) ?\}")
_UNION = re.compile(r"\\cup(?![a-zA-Z])|(?<=[)\]]) ?U ?(?=[(\[])")
_RATIO = re.compile(r":|\\colon(?![a-zA-Z])|\\text ?\{ ?to ?\}| to ")
_TOKEN = re.compile(r"\\begin|\\end|\\[{}]|\\langle|\\rangle|[()\[\]{}]")
_OPENING = ("(", "[", "{", "\\{", "\\langle", "\\begin")
_MATRIX = re.compile(r"\\begin ?\{([pbB]?)(matrix|array)\}(?: ?\{[lcr| ]*\})?(.*)\\end ?\{\1\2\}")
_NAME = (
    r"(?:m ?\\angle|\\angle|\\overline|\\triangle)? ?(?:\\?[A-Za-z]+(?:_(?:\w|\{\w+\}))?'?(?: ?\([\w, ]*\))?"
    r"|\{[A-Z]+\}|\([A-Za-z](?: ?, ?[A-Za-z])+ ?\)|\\text ?\{[A-Za-z ]+\})"
)
_ASSIGNMENT = re.compile(rf"({_NAME}) ?(?:=|\\approx(?![a-z])|\\in(?![a-z])) ?([^=<>]+)")
_RELATION = re.compile(r"=|<|>|\\(?:leq?|geq?|neq?|lt|gt|approx|in)(?![a-zA-Z])")
_TEXT = re.compile(r"\\text ?\{([^{}]*)\}")
_MARK = re.compile(r"'|\\prime(?![A-Za-z])|(?<=[A-Z)}])\^ ?(?:\{ ?)?(?:T(?![A-Za-z])|\\(?:top|intercal)(?![A-Za-z]))")
_BARE_WORDS = re.compile(r"[A-Za-z]{2,}(?:[ '-]+[A-Za-z]{2,})*")
_LONG_WORD = re.compile(r"(?<![\\A-Za-z])[A-Za-z]{3,}")
_FUNCTIONS = frozenset(
    (
        *("sin", "cos", "tan", "cot", "sec", "csc", "log", "exp", "sqrt", "arcsin", "arccos"),
        *("arctan", "min", "max", "gcd", "lcm", "det", "mod", "inf"),
    )
)
_VARIABLE = re.compile(r"(?<![\\A-Za-z])[A-Za-z]|[<>,;:&]|\\(?:le|ge|ne|in|text|approx)(?![A-Za-z])")
_MAX_ITEMS = 100
_MAX_DEPTH = 20  # of brackets


@dataclasses.dataclass(frozen=True)
class Collection:
    """`kind` distinguishes what cannot be equal: brackets, the shape of a matrix, how items are joined."""

    kind: str
    items: Sequence[str]
    is_ordered: bool


def is_same_answer(answer: str, expected: str, algebra: Algebra) -> bool:
    """`algebra(ours, theirs)` decides on expressions, without units; it may raise to say that it will not."""
    ours, theirs = spelled(answer), spelled(expected)
    if max(_depth(ours), _depth(theirs)) > _MAX_DEPTH:
        return False
    chosen = _is_same_choice(ours, theirs, algebra)
    return _is_same(ours, theirs, algebra) if chosen is None else chosen


def _is_same_choice(ours: str, theirs: str, algebra: Algebra) -> bool | None:
    """True if a choice with its text (`C) 42`) is the expected one, a letter, a text or both; None for no choice."""
    (our_letter, our_text), (their_letter, their_text) = split_choice(ours), split_choice(theirs)
    if (not our_letter and not their_letter) or (their_letter.islower() and not their_text):
        return None
    if not our_text and not their_text:
        return our_letter.upper() == their_letter.upper() if our_letter and their_letter else None
    if our_letter and their_letter:
        is_same = our_letter.upper() == their_letter.upper()
        return is_same and (not our_text or not their_text or _is_same(our_text, their_text, algebra))
    if our_letter:
        return _is_same(our_text, theirs, algebra) or _is_same(ours, theirs, algebra)
    return _is_same(ours, their_text, algebra) or _is_same(ours, theirs, algebra)


def _depth(text: str) -> int:
    changes = (1 if mark[0] in _OPENING else -1 for mark in _TOKEN.finditer(text))
    return max(itertools.accumulate(changes), default=0)


def _is_same(ours: str, theirs: str, algebra: Algebra) -> bool:
    ours, theirs = _bare(ours), _bare(theirs)
    if ours == theirs:
        return bool(ours)
    if not ours or not theirs:
        return False
    (our_body, our_unit), (their_body, their_unit) = split_unit(ours), split_unit(theirs)
    our_number, their_number = read_number(our_body), read_number(their_body)
    if our_number and their_number:
        return is_same_number(our_number, our_unit, their_number, their_unit)
    named = _without_names(ours, theirs)
    if named is not None:
        return named != ("", "") and _is_same(*named, algebra)
    if (result := _result(ours, algebra)) is not None:
        return _is_same(result, theirs, algebra)
    our_base, their_base = read_based(ours), read_based(theirs)
    if our_base or their_base:
        return is_same_in_base(our_base, ours, their_base, theirs)
    our_items, their_items = _collection(ours), _collection(theirs)
    if our_items and their_items:
        return _are_same_items(our_items, their_items, algebra)
    if their_number or (our_number and their_items):
        return False
    if _is_text(ours) or _is_text(theirs) or (_is_word(ours) and _is_word(theirs)):
        return _letters(ours) == _letters(theirs)
    if sorted(_long_words(our_body)) != sorted(_long_words(their_body)):
        return False
    if _marks(our_body) != _marks(their_body):
        return False
    return are_compatible(our_unit, their_unit) and algebra(in_tens(our_body), in_tens(their_body))


def _without_names(ours: str, theirs: str) -> tuple[str, str] | None:
    """Both without `x =` before them; None where that changes nothing, or the names belong to the answer."""
    left, right = _ASSIGNMENT.fullmatch(ours), _ASSIGNMENT.fullmatch(theirs)
    if left and right:
        if _letters(left[1]) == _letters(right[1]):
            return left[2], right[2]
        return ("", "") if read_number(left[2]) or read_number(right[2]) else None
    if left and not _RELATION.search(theirs):
        return left[2], theirs
    if right and not _RELATION.search(ours):
        return ours, right[2]
    return None


def _result(text: str, algebra: Algebra) -> str | None:
    """Result of, say, `10/2 = 5`; None where there are variables or relations, or it does not come to that."""
    name, *parts = text.split("=")
    if not re.fullmatch(_NAME, name.strip()):
        parts = [name, *parts]
    if len(parts) != 2 or any(_VARIABLE.search(part) or not part.strip() for part in parts):
        return None
    return parts[1].strip() if algebra(parts[0].strip(), parts[1].strip()) else None


def _are_same_items(ours: Collection, theirs: Collection, algebra: Algebra) -> bool:
    if ours.kind != theirs.kind or len(ours.items) != len(theirs.items) or len(ours.items) > _MAX_ITEMS:
        return False
    if ours.is_ordered:
        return all(_is_same(left, right, algebra) for left, right in zip(ours.items, theirs.items, strict=True))
    rest = list(theirs.items)
    for left in ours.items:
        found = next((index for index, right in enumerate(rest) if _is_same(left, right, algebra)), None)
        if found is None:
            return False
        del rest[found]
    return True


def _collection(text: str) -> Collection | None:
    if matrix := _MATRIX.fullmatch(text):
        return _matrix([row.split("&") for row in re.split(r"\\\\", matrix[3].replace("\\hline", "")) if row.strip()])
    if len(parts := _split(text, _UNION)) > 1:
        return Collection("union", parts, is_ordered=False)
    opening = _enclosing(text)
    if opening in ("(", "[", "\\langle") and not _MATRIX.search(text):
        inner, closing = _inside(text)
        items = _split(inner, re.compile(";")) if ";" in inner else _split(inner, re.compile(","))
        rows = [_split(_inside(item)[0], re.compile(",")) for item in items if _enclosing(item) == "["]
        if opening == "[" and len(rows) == len(items):
            return _matrix(rows)
        return Collection(f"{opening} {closing}", items, is_ordered=True) if len(items) > 1 else None
    if opening == "\\{":
        return Collection("list", _both_signs(_split(_inside(text)[0], _SEPARATOR)), is_ordered=False)
    if len(items := _both_signs(_split(text, _SEPARATOR))) > 1:
        return Collection("list", items, is_ordered=False)
    if len(items := _split(text, _RATIO)) > 1:
        return Collection("ratio", items, is_ordered=True)
    return None


def _matrix(rows: list[list[str]]) -> Collection:
    shape = f"matrix of rows {[len(row) for row in rows]}"
    return Collection(shape, [item.strip() for row in rows for item in row], is_ordered=True)


def _both_signs(items: list[str]) -> list[str]:
    r"""Each item with one `\pm` as two."""
    pairs = ([re.sub(r"\\pm ?", sign, item) for sign in "+-"] if item.count("\\pm") == 1 else [item] for item in items)
    return [item for pair in pairs for item in pair]


def _split(text: str, separator: re.Pattern[str]) -> list[str]:
    """Parts between the separators that stand in no brackets."""
    depth, last, parts = 0, 0, []
    marks = sorted([*_TOKEN.finditer(text), *separator.finditer(text)], key=lambda mark: (mark.start(), -mark.end()))
    end = 0
    for mark in marks:
        if mark.start() < end:
            continue
        end = mark.end()
        if _TOKEN.fullmatch(mark[0]):
            depth += 1 if mark[0] in _OPENING else -1
        elif depth == 0:
            parts.append(text[last : mark.start()].strip())
            last = mark.end()
    parts.append(text[last:].strip())
    return [part for part in parts if part]


def _enclosing(text: str) -> str | None:
    """The bracket that opens the text, if the one that closes it ends the text."""
    depth = 0
    for mark in _TOKEN.finditer(text):
        if mark.start() == 0 and mark[0] not in _OPENING:
            return None
        depth += 1 if mark[0] in _OPENING else -1
        if depth == 0:
            first = _TOKEN.match(text)
            return first[0] if first and mark.end() == len(text) else None
    return None


def _inside(text: str) -> tuple[str, str]:
    """Without the enclosing brackets, and the closing one."""
    marks = list(_TOKEN.finditer(text))
    return text[marks[0].end() : marks[-1].start()].strip(), marks[-1][0]


def _bare(text: str) -> str:
    """Without parentheses or braces around a single item, and text that is a number without `text`."""
    while (opening := _enclosing(text)) in ("(", "{"):
        inner, closing = _inside(text)
        if closing not in (")", "}") or (opening == "(" and len(_split(inner, _SEPARATOR)) > 1):
            break
        text = inner
    match = _TEXT.fullmatch(text)
    if match:
        body, _ = split_unit(match[1].strip())
        return match[1].strip() if read_number(body) else text
    return text


def _is_text(text: str) -> bool:
    return _TEXT.fullmatch(text) is not None


def _is_word(text: str) -> bool:
    """Bare letters, which algebra would take for a product."""
    return _BARE_WORDS.fullmatch(text) is not None and not _FUNCTIONS.intersection(text.lower().split())


def _marks(text: str) -> list[str]:
    """Primes and marks of a transpose, which algebra does not see."""
    return sorted("'" if mark in ("'", "\\prime") else "T" for mark in _MARK.findall(text))


def _letters(text: str) -> str:
    r"""Letters of words that are compared: without case, blanks, `\text` and parentheses."""
    text = re.sub(r"\\(?:text|overline|cdot|angle)(?![a-zA-Z])|[ (){}\\*.'-]", "", text)
    return text.casefold()


def _long_words(text: str) -> list[str]:
    """Words in an expression, whose letters algebra would multiply in any order."""
    plain = re.sub(r"\\(?:begin|end) ?\{\w+\}", "", text)
    return [word.lower() for word in _LONG_WORD.findall(plain) if word.lower() not in _FUNCTIONS]


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


_CHOICE = re.compile(
    r"(?:option |choice )?(?:\((?P<round>[A-Za-z])\)|(?P<bare>[A-Za-z])(?:\)|[.:](?= |$)|$))[.:]?(?: |(?=[^ ])|$)"
    r"(?P<text>.*)",
    re.IGNORECASE,
)
# What goes on behind a letter that is no choice: an operator, another choice, a letter.
_MORE = re.compile(
    r"[,;+*/^=<>&|!)\]}_']|- |\\(?:cup|cap|times|cdot|pm|le|ge|ne|in|approx)(?![a-z])|(?:and|or|to)\b"
    r"|[A-Za-z]$|\(?[A-J]\)|.*(?:\bor\b|\band\b|[,;/]) ?\(?[A-J][).:]"
)


def split_choice(text: str) -> tuple[str, str]:
    """The letter, A to J, and the text of a choice, both "" for anything else."""
    opening = re.match(r"\\text ?\{([^{}]*)\} ?", text)
    if opening:
        text = f"{opening[1].strip()} {text[opening.end() :]}".strip()
    match = _CHOICE.fullmatch(text)
    if match is None or _MORE.match(match["text"]) or (match["round"] or match["bare"]).upper() not in "ABCDEFGHIJ":
        return "", ""
    return match["round"] or match["bare"], match["text"]
