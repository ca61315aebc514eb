"""Mathematical answers: extraction, equality, and expressions that would never end."""

import asyncio
import json
import time
from pathlib import Path

import pytest

from cookhouse.grading import extract_math_answer, grade_math

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("so \\boxed{42}.", "42"),
        ("\\boxed{1} no, \\boxed{\\frac{1}{2}}", "\\frac{1}{2}"),
        ("\\boxed{\\{1, 2\\}}", "\\{1, 2\\}"),
        ("He has 3.\n#### 1,234\n", "1,234"),
        ("#### 5 apples\nthat is all", "5 apples"),
        ("\\boxed{never closed", None),
        ("the answer is 42", None),
        ("####", None),
        ("", None),
    ],
)
def test_extraction(text: str, answer: str | None) -> None:
    """Catches an answer cut at an inner brace, or a first attempt taken for the last."""
    assert extract_math_answer(text) == answer


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("\\boxed{42}", "42"),
        ("#### 1234", "#### 1,234"),
        ("1{,}000{,}000", "1000000"),
        ("42.0", "42"),
        ("1/2", "0.5"),
        ("\\frac{1}{2}", "0.5"),
        ("\\dfrac12", "\\frac{1}{2}"),
        ("1 + x", "x+1"),
        ("(x-1)(x+1)", "x^2-1"),
        ("\\left( 3, \\frac{\\pi}{2} \\right)", "(3,\\frac{\\pi}{2})"),
        ("\\text{Evelyn}", "Evelyn"),
        ("\\{2, 1\\}", "\\{1, 2\\}"),
        ("$5$", "5"),
        ("3 1/2", "3.5"),
        ("3\\frac{1}{2}", "\\frac72"),
        ("-1\\frac12", "-1.5"),
        ("\\boxed{18 dollars}", "18"),
        ("\\$18.00", "18 \\text{ dollars}"),
        ("$18", "18"),
        ("12\\text{ cm}^2", "12 square centimeters"),
        ("90^\\circ", "90 degrees"),
        ("33\\%", "33"),
        ("33%", "0.33"),
        ("1.2 \\times 10^{3}", "1200"),
        ("x = \\frac{3}{2}", "1.5"),
        ("[-2,7]", "x \\in [-2,7]"),
        ("(3, 456)", "(3,456)"),
        ("4, -4", "\\{-4, 4\\}"),
        ("1 \\pm \\sqrt{19}", "1 + \\sqrt{19}, 1 - \\sqrt{19}"),
        ("(2, 3) \\cup (-\\infty, 0]", "(-\\infty,0]\\cup(2,3)"),
        ("\\begin{bmatrix}0.5\\\\2\\end{bmatrix}", "\\begin{pmatrix} 1/2 \\\\ 2 \\end{pmatrix}"),
        ("x > 1", "(1, \\infty)"),
        ("(B)", "\\text{B}"),
        ("2ba", "2ab"),
        ("6.283185", "2\\pi"),
        ("0.333333", "\\frac13"),
        ("\\frac{6^{100}-5^{100}}{6^{100}}", "1-\\left(\\frac{5}{6}\\right)^{100}"),
        ("0.1π", "pi/10"),
        ("√(5+2√6)", "\\sqrt2+\\sqrt3"),
        ("(1+sqrt(5))/2", "\\frac{1+\\sqrt5}{2}"),
        ("sin²(x)", "1-cos(x)^2"),
        ("{x | x > 2}", "(2, ∞)"),
    ],
)
async def test_equal_answers(answer: str, expected: str) -> None:
    """Catches right answers that earn nothing."""
    assert await grade_math(answer, expected)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("41", "42"),
        ("1/0", "1"),
        ("", "0"),
        ("\\boxed{}", "0"),
        ("x", "x+1"),
        ("12", "1, 2"),
        ("(1, 2)", "(2, 1)"),
        ("42 or 43", "42"),
        ("\\text{True}", "1"),
        ("\\frac{", "1"),
        ("9" * 5000, "9"),
        ("import os", "1"),
        ("31/2", "3 1/2"),
        ("7/2", "31/2"),
        ("(3456)", "(3,456)"),
        ("3,456", "(3,456)"),
        ("seat", "east"),
        ("\\text{seat}", "\\text{east}"),
        ("4 + 1", "5"),
        ("x = 4 + 1", "5"),
        ("(2, 4 + 1)", "(2, 5)"),
        ("\\sqrt{25}", "5"),
        ("5t", "5"),
        ("5 thirds", "5"),
        ("18 cents", "\\$18"),
        ("5 p.m.", "5\\text{ a.m.}"),
        ("0.5%", "0.5"),
        ("y = 5", "x = 5"),
        ("13", "x^2 + y^2 = 13"),
        ("[0, 1]", "(0, 1)"),
        ("2, 2", "2"),
        ("2:1", "1:2"),
        ("0.33", "\\frac13"),
        ("(A), (C)", "A"),
        ("A. B", "A"),
        ("(a) 5", "a"),
        ("-infinity", "\\infty"),
        ("ℝ", "ℚ"),
        ("0.000123", "\\frac{12345}{10^8}"),
        ("0.000000", "e^{-50}"),
        ("\\frac{1}{2006!}", "\\frac{1}{2004!}"),
        ("\\frac{x}{2006!}", "\\frac{x}{2004!}"),
        ("1 - e^{-200}", "1"),
        ("\\begin{pmatrix}e^{-50}\\\\1\\end{pmatrix}", "\\begin{pmatrix}e^{-51}\\\\1\\end{pmatrix}"),
        ("101_2 + x", "101_3 + x"),
        ("√2x", "\\sqrt{2x}"),
        ("pi", "ip"),
        ("(" * 900 + "1", "1"),
        ("(" * 900 + "1,2" + ")" * 900, "(1,2)"),
    ],
)
async def test_different_answers(answer: str, expected: str) -> None:
    """Catches wrong or broken answers that earn a reward."""
    assert not await grade_math(answer, expected)


@pytest.mark.parametrize("answer", ["9^{9^{9^{9}}}", "(10^{10^{10}})!", "\\sum_{n=1}^{10^{12}} \\sin(n^n)"])
async def test_an_endless_expression_is_given_up(answer: str) -> None:
    """Catches a power tower that hangs the run: the event loop goes on, and the comparison ends in time."""
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            await asyncio.sleep(0.05)
            ticks += 1

    ticker = asyncio.create_task(tick())
    start = time.monotonic()
    assert not await grade_math(answer, "7^{7^{7^{7}}}", timeout_seconds=1.0)
    seconds = time.monotonic() - start
    ticker.cancel()
    assert seconds < 15.0  # with the start of a worker on a busy machine
    assert ticks >= 5 * min(seconds, 1.0) or seconds < 0.5
    assert await grade_math("x+1", "1+x")


async def test_reference_solutions_of_math_500(shared: Path) -> None:
    """Catches an extraction or comparison that refuses the reference itself."""
    rows = [json.loads(line) for line in (shared / "data/math/math500.jsonl").read_text().splitlines()]
    assert [row["unique_id"] for row in rows if not await grade_math(row["solution"], row["answer"])] == []


async def test_reference_solutions_of_gsm8k(shared: Path) -> None:
    """The same for `####` and thousands separators; the number before the last line is not the answer."""
    rows = [json.loads(line) for line in (shared / "data/gsm8k/test.jsonl").read_text().splitlines()]
    for row in rows:
        number = row["answer"].rpartition("####")[2].replace(",", "")
        assert await grade_math(f"\\boxed{{{number}}}", row["answer"])
        assert not await grade_math(str(int(number) + 1), row["answer"])
