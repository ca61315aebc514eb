"""Answers in Unicode, plain text, CJK and variants of LaTeX: the same value is right, a near one is not."""

import pytest
from tests.grading.notations import EXPRESSIONS, NUMBERS, NUMERALS, near_misses

from cookhouse.grading import extract_math_answer, grade_math
from cookhouse.grading.harness.extraction import is_same_answer


def _decide(answer: str, expected: str) -> bool:
    return is_same_answer(extract_math_answer(answer) or answer, expected, _no_algebra)


def _no_algebra(ours: str, theirs: str) -> bool:
    raise AssertionError(f"algebra was asked about {ours!r} and {theirs!r}")


@pytest.mark.parametrize("name", NUMERALS)
def test_a_value_in_another_notation_is_right(name: str) -> None:
    """Catches a right answer that earns nothing for its spelling."""
    for number in NUMBERS:
        written, plain = NUMERALS[name](number)
        assert _decide(written, plain), (written, plain)


def test_near_values_are_wrong() -> None:
    """Catches a spelling that loses a digit, a sign, a base or a unit on its way to a value."""
    cases = list(near_misses(NUMERALS))
    assert len(cases) > 900
    assert [case for case in cases if _decide(*case[1:])] == []


@pytest.mark.slow
@pytest.mark.anyio
async def test_expressions_in_another_notation() -> None:
    """The same where algebra decides."""
    right = [notation(number) for notation in EXPRESSIONS.values() for number in NUMBERS[:2]]
    assert [case for case in right if not await grade_math(*case, timeout_seconds=30)] == []
    assert await grade_math("1/2*x", "\\frac{x}{2}", timeout_seconds=30)
    assert not await grade_math("1/2*x", "\\frac{1}{2x}", timeout_seconds=30)
    for wrong in (("B) 12 or C) 13", "B"), ("\\frac\\pi2", "\\frac{2}{\\pi}"), ("A^T", "A")):
        assert not await grade_math(*wrong, timeout_seconds=30)
    near = list(near_misses(EXPRESSIONS))[::5]
    assert [case for case in near if await grade_math(*case[1:], timeout_seconds=30)] == []


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        *[("∅", "\\varnothing"), ("empty set", "\\emptyset"), ("ℝ", "\\mathbb R"), ("all real numbers", "\\mathbb{R}")],
        *[("infinity", "\\infty"), ("-∞", "-\\infty"), ("DNE", "\\text{does not exist}"), ("无解", "no solution")],
        *[("（−1，2］", "(-1,2]"), ("{x | x > 2}", "x > 2"), ("25℃", "25^\\circ C"), ("25°C", "25 degrees Celsius")],
        *[("¥12", "12元"), ("US$5", "5 \\text{ USD}"), ("Rs. 500", "500"), ("2小时", "2 hours"), ("12 км", "12")],
        *[("5 sec", "5 \\text{ seconds}"), ("10 m²", "10 \\text{ m}^2"), ("12 dozen eggs", "144")],
        *[("(C) 42", "C"), ("C、42", "C"), ("Option C", "C"), ("选C", "\\text{C}"), ("42", "\\textbf{(C)}\\ 42")],
        *[("0.1(6)", "\\frac16"), ("0.\\dot{1}4285\\dot{7}", "\\frac17"), ("33.\\overline{3}\\%", "\\frac13")],
        *[("2.\\overline3", "\\frac73"), ("0.142857142857…", "\\frac17"), ("1.234.567,5", "1234567.5")],
        *[("5_{10}", "5"), ("2516", "2516_8"), ("(101)_2", "101_{2}"), ("ff_{16}", "FF_{16}"), ("X = 12_5", "12_5")],
        *[("**12**", "12"), ('"12"', "12"), ("The answer is 12", "12"), ("答案是12", "12"), ("= 12", "12")],
        *[("\\underline{12}", "12"), ("{\\bf 12}", "12"), ("\\nicefrac{1}{2}", "0.5"), ("3∶4", "3:4")],
        *[("\\frac\\pi2", "\\frac{\\pi}{2}"), ("\\frac{3}\\pi", "\\frac{3}{\\pi}"), ("\\binom52", "\\binom{5}{2}")],
        *[("(-1)/2", "-\\frac12"), ("-1/(2)", "-0.5"), ("12 per cent", "12\\%"), ("\\overline{2516}_9", "2516_9")],
        *[("n choose 2", "\\binom n2"), ("3/(-4)", "-\\frac34"), ("2516_{base 9}", "2516_9"), ("x in [0,1]", "[0,1]")],
        *[("x^½", "x^{\\frac12}"), ("2Pi", "2\\pi"), ("2516_{\\text{base 9}}", "2516_9")],
        *[("\\text{2516}_9", "2516_{9}"), ("\\mathbb{R}\\backslash\\{0\\}", "\\mathbb{R}\\setminus\\{0\\}")],
    ],
)
def test_one_of_a_kind(answer: str, expected: str) -> None:
    """Catches a name, a unit or a mark that is read in one spelling."""
    assert _decide(answer, expected)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        *[("12万", "12"), ("12以上", "12"), ("12或13", "12"), ("3折", "3"), ("12元", "12角"), ("12厘米", "12 m")],
        *[("12 millones", "12"), ("12 тысяч", "12"), ("3 million", "3"), ("12 k", "12"), ("12円", "12元")],
        *[("12 34", "1234"), ("1 00", "100"), ("1.000", "1000"), ("1,5", "1.5"), ("(1,680)", "1680")],
        *[("-(1,680)", "-1680"), ("-(-1/2)", "\\frac12"), ("0.333...", "0.333"), ("0.12...", "\\frac{12}{99}")],
        *[("C) 42", "D"), ("C) 42", "43"), ("(C) 42", "(B) 42"), ("A) and C)", "A")],
        *[("2516_9", "2516_8"), ("101_2", "5"), ("101_2", "101"), ("255", "FF_{16}"), ("FF_{16}", "255")],
        *[("\\varnothing", "0"), ("DNE", "undefined"), ("25°C", "25°F")],
        *[("]1,2[", "[1,2]"), ("5 sec", "5 min"), ("0.000000", "10^{-30}"), ("1e-30", "1e-31")],
        *[("\\boxed 42", "4"), ("\\boxed 42", "2"), ("x = 5", "y = 5")],
        *[("B) 12, C) 13", "12"), ("12 M", "12"), ("12'", "12''"), ("f'(x)", "f''(x)")],
        *[("12 choose 2", "12"), ("2516_{base 8}", "2516_9"), ("x in [0,1]", "(0,1)"), ("3/(-4)", "0.75")],
        *[("-(-1)/2", "-\\frac12"), ("0.\\overline{12}_9", "12_9")],
    ],
)
def test_one_near_miss_of_a_kind(answer: str, expected: str) -> None:
    """Catches what one more spelling would pay for by mistake."""
    assert not _decide(answer, expected)


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("\\fbox{\\frac{1}{2}}", "\\frac{1}{2}"),
        ("\\boxed {12}", "12"),
        ("$\\boxed 7$", "7"),
        ("so \\boxed 42.", "42"),
        ("\\boxed\\frac{1}{2}, done", "\\frac{1}{2}"),
        ("\\boxed{1} then \\fbox{2}", "2"),
        ("\\boxed{1} then \\boxed", None),
        ("\\boxed{1} then \\boxed{2", None),
        ("\\boxed{a \\\\}", "a \\\\"),
        ("\\boxedness{3}", None),
    ],
)
def test_boxes(text: str, answer: str | None) -> None:
    """Catches a box that is not seen, or an earlier one in its place."""
    assert extract_math_answer(text) == answer
