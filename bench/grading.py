"""How often the grader of mathematics is wrong: right answers refused, wrong answers accepted.

python -m bench.grading --data FOLDER [--count 2500] [--seed 0]

The expected answers are those of GSM8K and MATH (`gsm8k/test.jsonl`, `math/*.jsonl` below FOLDER). Each is rewritten in
forms that mean the same, and in forms near to it that do not; `--count` of each, drawn with the seed.
"""

import argparse
import asyncio
import json
import random
import re
from collections import Counter
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

from bench.harness import save_record

from cookhouse.grading import extract_math_answer, grade_math

_WORKERS = 4
_SHOWN = 20
_NUMBER = re.compile(r"(-?)(?:(\d+(?:\.\d+)?)|\\[dt]?frac\{(\d+)\}\{(\d+)\})")
_UNITS = ("dollars", "apples", "\\text{ miles}", "\\text{ cm}^2", "square feet", "\\text{ hours}", "miles per hour")
_NAMES = ("x", "n", "\\theta", "f(2)", "\\text{Area}", "AB", "a_1")
Form = tuple[str, str]
"""What was done to the answer, and the result."""


def expected_answers(data: Path) -> list[str]:
    """Distinct answers of both sets, GSM8K's after those of MATH."""
    files = [*sorted((data / "math").glob("*.jsonl")), data / "gsm8k" / "test.jsonl"]
    rows = [json.loads(line) for file in files for line in file.read_text(encoding="utf-8").splitlines()]
    found = (extract_math_answer(row["solution"] if "solution" in row else row["answer"]) for row in rows)
    return list(dict.fromkeys(answer for answer in found if answer))


def right_forms(answer: str) -> Iterator[Form]:
    """The same answer as a model might write it."""
    yield "itself", answer
    yield "in a sentence", f"So it is $\\boxed{{{answer}}}$."
    yield "after a mark", f"It follows.\n#### {answer}"
    yield "in dollars", f"${answer}$"
    yield "full stop", f"{answer}."
    yield "blanks", re.sub(r"(?<=[,=+])(?=[^\s\d\\!])", " ", f" {answer} ")
    value = _value(answer)
    if value is not None:
        yield from _right_numbers(answer, value)
        return
    if "\\frac{" in answer:
        yield "dfrac", answer.replace("\\frac", "\\dfrac")
        yield "slash", re.sub(r"\\frac\{(\d+)\}\{(\d+)\}", r"{\1}/{\2}", answer) if "cup" in answer else answer
    if re.fullmatch(r"\\frac ?\d ?\d", answer):
        top, low = re.findall(r"\d", answer)
        yield "braces", f"\\frac{{{top}}}{{{low}}}"
        yield "slash", f"{top}/{low}"
    if "\\left" in answer:
        yield "without left", answer.replace("\\left", "").replace("\\right", "")
    elif re.fullmatch(r"[(\[].*[)\]]", answer) and "cup" not in answer and answer.count("(") < 2:
        yield "left", f"\\left{answer[:-1]}\\right{answer[-1]}"
    if unit := re.fullmatch(r"(.*[\d}]) ?\\?[,;]? ?(\^\{?\\circ\}?|\\%|\\(?:text|mbox) ?\{.*)", answer):
        yield "without unit", unit[1].rstrip("\\,; ")
    if match := re.fullmatch(r"(-?[\d.]+)(\^\{?\\circ\}?)", answer):
        yield "degrees", f"{match[1]}\\text{{ degrees}}"
        yield "degree sign", f"{match[1]}°"
    if match := re.fullmatch(r"([\d.]+)\\%", answer):
        yield "percent sign", f"{match[1]}%"
        yield "percent", f"{match[1]} percent"
        yield "share", str(float(Fraction(match[1]) / 100))
    if match := re.fullmatch(r"\\\$ ?([\d.]+)", answer):
        yield "currency", f"{match[1]} dollars"
        yield "currency in text", f"{match[1]}\\text{{ dollars}}"
        yield "without currency", match[1]
    if match := re.fullmatch(r"\\text\{([^{}\\]*)\}", answer):
        yield "bare words", match[1]
        yield "capitals", f"\\text{{{match[1].upper()}}}"
        yield "textbf", f"\\textbf{{{match[1]}}}"
    if match := re.fullmatch(r"[a-z] ?(?:=|\\in) ?([^=]+)", answer):
        yield "without name", match[1]
    elif re.fullmatch(r"[-\w\\{} +.]+", answer) and "text" not in answer and "mbox" not in answer:
        yield "with name", f"X = {answer}"
    items = _items(answer)
    if items:
        yield "reordered", ", ".join(reversed(items))
        yield "as a set", f"\\{{{','.join(items)}\\}}"
        yield "with and", ", ".join(items[:-1]) + f" \\text{{ and }} {items[-1]}"
    if "\\cup" in answer and "(-\\infty" in answer:
        yield "union reordered", " \\cup ".join(reversed(re.split(r" ?\\cup ?", _plain(answer))))
    if match := re.fullmatch(r"(-?\d*)\\pi", answer):
        yield "product", f"\\pi \\cdot {match[1]}" if match[1] not in ("", "-") else answer
    if match := re.fullmatch(r"(-?\d+) ?\\sqrt\{(\d+)\}", answer):
        yield "root", f"{'-' if match[1][0] == '-' else ''}\\sqrt{{{int(match[1]) ** 2 * int(match[2])}}}"
        yield "factor", f"{match[1]} \\times \\sqrt{match[2] if len(match[2]) == 1 else f'{{{match[2]}}}'}"
    match = re.fullmatch(r"([-\w\\{}]+) ?\+ ?([\w\\{}]+)", answer)
    if match and match[1].count("{") == match[1].count("}"):
        yield "sum reordered", f"{match[2]}+{match[1]}" if match[1][0] != "-" else f"{match[2]}{match[1]}"
    if "pmatrix" in answer:
        yield "bmatrix", answer.replace("pmatrix", "bmatrix")
        yield "tight", re.sub(r" ?(&|\\\\) ?", r"\1", answer)


def _right_numbers(answer: str, value: Fraction) -> Iterator[Form]:
    sign, size = ("-" if value < 0 else ""), abs(value)
    top, low = size.numerator, size.denominator
    for unit in _UNITS:
        yield "unit", f"{answer} {unit}"
    for name in _NAMES:
        yield "name", f"{name} = {answer}"
    yield "fraction", f"{sign}\\frac{{{top * 2}}}{{{low * 2}}}"
    yield "dfrac", f"{sign}\\dfrac{{{top * 3}}}{{{low * 3}}}"
    yield "slash", f"{sign}{top}/{low}"
    yield "sign in the numerator", f"\\frac{{{sign}{top}}}{{{low}}}"
    yield "text", f"\\text{{{sign}{top}/{low}}}"
    yield "parentheses", f"({_plain(answer)})"
    yield "braces", f"{{{answer}}}"
    yield "square unit", f"{answer}\\mbox{{ m}}^2"
    yield "currency", f"{sign}\\${answer.lstrip('-')}"
    yield "degrees", f"{answer}^\\circ"
    if abs(value) > 1:
        yield "percent", f"{answer}\\%"
    if low == 1:
        yield "decimal", f"{sign}{top}.00"
        yield "groups", f"{sign}{top:,}"
        yield "latex groups", f"{sign}{top:,}".replace(",", "{,}")
        yield "thin groups", f"{sign}{top:,}".replace(",", ",\\!")
        yield "spaced groups", f"{sign}{top:,}".replace(",", "\\,")
        yield "currency groups", f"{sign}\\${top:,}.00"
    if top >= 10:
        yield "power of ten", f"{sign}{_decimal(size / 10)} \\times 10^{{1}}" if _terminates(low) else answer
        yield "exponent", f"{sign}{_decimal(size / 10)}e1" if _terminates(low) else answer
    if low > 1 and _terminates(low):
        yield "decimal", f"{sign}{_decimal(size)}0"
        yield "short decimal", f"{sign}{_decimal(size)}".replace("0.", ".", 1) if size < 1 else answer
        yield "percentage", f"{sign}{_decimal(size * 100)}\\%"
    if low > 1 and top > low:
        whole, rest = divmod(top, low)
        yield "mixed", f"{sign}{whole}\\frac{{{rest}}}{{{low}}}"
        yield "mixed with a blank", f"{sign}{whole} \\dfrac{{{rest}}}{{{low}}}"
        yield "mixed with a slash", f"{sign}{whole} {rest}/{low}"


def wrong_forms(answer: str) -> Iterator[Form]:
    """What a grader might take for the answer, and must not."""
    yield "nothing", ""
    yield "a word", "none"
    yield "and more", f"{answer}, 7391"
    yield "or another", f"{answer} or 7391"
    yield "plus one", f"({answer})+1" if "=" not in answer else f"{answer}+1"
    yield "inequality", f"x > {answer}"
    yield "in a tuple", f"({answer}, 7391)"
    for place in list(re.finditer(r"(?<![\^_])(?<![\^_]\{)\d", answer))[:3]:  # not an exponent or base
        digit = str((int(place[0]) + 1 + (place[0] == "9")) % 10)
        yield "a digit", answer[: place.start()] + digit + answer[place.end() :]
    value = _value(answer)
    if value is not None:
        yield from _wrong_numbers(value)
        return
    if match := re.fullmatch(r"\\text\{([^{}\\]*)\}", answer):
        word = match[1]
        if len(set(word.strip("()"))) > 1:
            yield "anagram", word[::-1]
            yield "anagram in text", f"\\text{{{word[1:]}{word[:1]}}}"
        yield "not", f"\\text{{not {word}}}"
    if match := re.fullmatch(r"([a-z]) ?= ?([^=]+)", answer):
        other = "w" if match[1] != "w" else "v"
        yield "another name", f"{other} = {match[2]}" if _value(match[2]) is not None else "w = 7391"
    inner = re.fullmatch(r"(?:\\left)? ?([(\[])(.*?)(?:\\right)? ?([)\]])", answer)
    if inner and "\\cup" not in answer and "," in inner[2]:
        parts = [part.strip() for part in inner[2].split(",")]
        yield "swapped", f"{inner[1]}{','.join(reversed(parts))}{inner[3]}" if parts != parts[::-1] else "(7391,1)"
        yield "joined", f"({''.join(parts)})"
        yield "brackets", f"{'[' if inner[1] == '(' else '('}{inner[2]}{inner[3]}"
        yield "an item less", f"{inner[1]}{','.join(parts[1:])}{inner[3]}"
        yield "an item more", f"{inner[1]}{inner[2]},{parts[0]}{inner[3]}"
    if items := _items(answer):
        yield "an item less", ", ".join(items[1:])
        yield "an item twice", ", ".join([items[0], *items])
    for unit, others in (("\\circ", ("cm", "dollars")), ("\\$", ("cents", "hours")), ("\\%", ("cm", "degrees"))):
        if unit in answer:
            bare = re.sub(r"\^\{?\\circ\}?|\\\$|\\%", "", answer)
            yield from (("another unit", f"{bare} {other}") for other in others)
    if "matrix" in answer:
        yield "transposed", answer.replace("\\\\", "&") if "&" not in answer else answer.replace("-1", "1")
    is_expression = re.fullmatch(r"[^=,:]*(\\sqrt|\\pi|[a-z])[^=,:]*", answer)
    if is_expression and not re.search(r"[\[(]|text|mbox|infty|pm", answer):
        yield "negated", f"-({answer})"
        yield "doubled", f"2({answer})"
        yield "a power", f"({answer})^3"
        yield "rounded", "3.14"


def _wrong_numbers(value: Fraction) -> Iterator[Form]:
    sign, size = ("-" if value < 0 else ""), abs(value)
    top, low = size.numerator, size.denominator
    text = f"{sign}{top}" if low == 1 else f"{sign}\\frac{{{top}}}{{{low}}}"
    yield "sum", f"{text} - 1 + 1"
    yield "product", f"{text} \\cdot 1"
    yield "root", f"\\sqrt{{{top**2}}}" if low == 1 else f"\\sqrt{{{top**2}/{low**2}}}"
    yield "difference", f"{top + 4} - 4" if low == 1 else f"{text} - 0"
    yield "twice negated", f"-(-{top}/{low})"
    yield "equation", f"x + {text} = 1"
    yield "variable", f"{text}x"
    yield "factorial", f"{text}!"
    yield "list", f"{text}, {text}"
    yield "interval", f"[{text}, 7391]"
    yield "scale", f"{text} thousand" if value else "1 thousand"
    yield "power", f"{text} \\times 10^{{3}}" if value else "10^{3}"
    yield "mixed", f"{sign}{top} 1/2" if low == 1 else f"{sign}{top} {low}"
    if low == 1 and top >= 10:
        yield "split", f"({str(top)[0]},{str(top)[1:]})"
        yield "decimal point", f"{sign}{str(top)[0]}.{str(top)[1:]}" if top != 10 else "1.0"
        if len(str(top)) != 4:  # `1 234` is a group of digits
            yield "spaced", f"{sign}{str(top)[0]} {str(top)[1:]}"
        yield "slash", f"{str(top)[0]}/{str(top)[1:]}" if int(str(top)[1:]) else "1/7"
    if value:
        yield "negated", f"{'' if sign else '-'}{top}/{low}"
        yield "share", f"{text}\\% of 7"
    if low > 1:
        whole, rest = divmod(top, low)
        yield "inverted", f"{sign}\\frac{{{low}}}{{{top}}}"
        if whole:
            if f"{whole}{rest}" != str(top):
                yield "joined mixed", f"{sign}{whole}{rest}/{low}"
            yield "sum of a mixed", f"{whole} + {rest}/{low}"
        yield "short decimal", f"{sign}{float(size):.1f}" if Fraction(f"{float(size):.1f}") != size else "7391"


def _value(answer: str) -> Fraction | None:
    match = _NUMBER.fullmatch(_plain(answer))
    if match is None:
        return None
    size = Fraction(match[2]) if match[2] else Fraction(int(match[3]), int(match[4]))
    return -size if match[1] else size


def _plain(answer: str) -> str:
    """Without digit groups, and stretched brackets."""
    return re.sub(r"\\left|\\right", "", re.sub(r"(?<=\d),(?:\\! ?)?(?=\d{3})(?!.*[(\[])", "", answer))


def _items(answer: str) -> list[str]:
    """Numbers or roots with commas between them."""
    parts = [part.strip() for part in answer.split(",")]
    return parts if len(parts) > 1 and all(re.fullmatch(r"-?(\d+|\\sqrt\{\d+\})", part) for part in parts) else []


def _terminates(denominator: int) -> bool:
    return 10**12 % denominator == 0


def _decimal(value: Fraction) -> str:
    """All places of a decimal that ends."""
    digits = f"{value.numerator * 10**12 // value.denominator:013d}"
    return f"{digits[:-12]}.{digits[-12:]}".rstrip("0").rstrip(".")


def draw(answers: list[str], count: int, generator: random.Random, *, right: bool) -> list[tuple[str, str, str]]:
    """(what was done, form, expected), as evenly over the answers as their forms allow; fewer where there are fewer."""
    forms = [
        [(kind, form, answer) for kind, form in (right_forms if right else wrong_forms)(answer)] for answer in answers
    ]
    generator.shuffle(forms)
    for of_one in forms:
        generator.shuffle(of_one)
    deepest = max(map(len, forms))
    return [of_one[depth] for depth in range(deepest) for of_one in forms if depth < len(of_one)][:count]


async def measure(cases: list[tuple[str, str, str]], *, right: bool) -> list[tuple[str, str, str]]:
    """Those that the grader gets wrong."""
    room = asyncio.Semaphore(_WORKERS)

    async def is_graded_wrong(form: str, expected: str) -> bool:
        async with room:
            return await grade_math(form, expected) is not right

    wrong = await asyncio.gather(*(is_graded_wrong(form, expected) for _, form, expected in cases))
    return [case for case, is_wrong in zip(cases, wrong, strict=True) if is_wrong]


async def measure_all(data: Path, count: int, seed: int) -> dict[str, float]:
    answers = expected_answers(data)
    figures: dict[str, float] = {}
    for name, right in (("right answers refused", True), ("wrong answers accepted", False)):
        cases = draw(answers, count, random.Random(seed), right=right)
        failed = await measure(cases, right=right)
        figures |= {name: len(failed), f"{name}: of": len(cases)}
        print(
            f"{name}: {len(failed)} of {len(cases)} ({len(failed) / len(cases):.2%}), {len(answers)} expected answers"
        )
        print("  by form:", dict(Counter(kind for kind, _, _ in failed).most_common()))
        for kind, form, expected in failed[:_SHOWN]:
            print(f"  {kind}: {form!r} for {expected!r}")
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with gsm8k/test.jsonl and math/*.jsonl")
    parser.add_argument("--count", type=int, default=2500, help="forms of each kind")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--save", action="store_true", help="write a record under results/")
    options = parser.parse_args()
    figures = asyncio.run(measure_all(options.data, options.count, options.seed))
    if options.save:
        save_record("grading", {"count": options.count, "seed": options.seed}, figures)


if __name__ == "__main__":
    main()
