"""Algebra on two mathematical answers, in a process that may be killed when it takes too long.

A worker imports this once. The pairs compared then let it build its LaTeX parser, and import the parts of sympy that
most comparisons need, before it forks: 0.1 to 0.5 s that each comparison would take otherwise.
"""

import dataclasses
import logging
import re
from typing import Any

from math_verify import LatexExtractionConfig, grader, parse, verify
from sympy import Float, MatrixBase, MatrixExpr, Rational
from sympy.core.evalf import PrecisionExhausted

from .extraction import is_same_answer

logging.disable()  # it warns that no timeout of its own is set; the sandbox has one

_WARM_UP = (
    ("\\frac{1}{2}x + \\text{a}", "\\frac{x}{2} + \\text{a}"),
    ("10", "8n^2+4n+1"),
    ("331", "\\left[ \\frac{\\pi^2}{8}, \\frac{5 \\pi^2}{4} \\right]"),
    ("x^8 + x^7 - 1", "(x-1)(x+1)^7"),
    ("\\begin{pmatrix} 1/5 \\\\ -18/5 \\end{pmatrix}", "\\begin{pmatrix} 1 \\\\ 2 \\end{pmatrix}"),
    ("\\{1,2\\}", "\\{2,3\\}"),
    ("(1,\\infty)", "x>1"),
    ("\\frac{3\\sqrt{3}}{4}", "\\cot x"),
    ("4.5\\%", "\\sqrt{2}"),
    ("1+274i", "4+9e"),
    ("\\sqrt{8}", "2\\sqrt{2}"),
)


# Without the library's units, which take the `t` of `5t` for one, and its search for a number in what it cannot parse.
_NOTATION = LatexExtractionConfig(
    try_extract_without_anchor=False,
    boxed_match_priority=0,
    normalization_config=dataclasses.replace(LatexExtractionConfig().normalization_config, units=False),
)
_IMAGINARY = re.compile(r"(?<=[\d)}])i(?![A-Za-z])")  # apart, so that it is the same in `3i` and in `i`
_DIGITS = 1000  # to which constants are distinguished
_ROUNDING = 5e-4  # of a value, that a decimal of six places may be off by
_is_near = grader.sympy_numeric_eq


def compare(answer: str, expected: str) -> None:
    """Print whether the two are the same, as `true` or `false`."""
    print("true" if is_same_answer(answer, expected, _is_equal) else "false")  # noqa: T201 - how a program answers


def _is_equal(answer: str, expected: str) -> bool:
    ours, theirs = (
        parse(
            f"\\boxed{{{_IMAGINARY.sub(' i', text)}}}", [_NOTATION], fallback_mode="no_fallback", parsing_timeout=None
        )
        for text in (answer, expected)
    )
    return bool(verify(theirs, ours, allow_set_relation_comp=True, timeout_seconds=None))


def _is_same_value(ours: Any, theirs: Any, *rounding: int) -> bool:
    """The library's comparison of values, in place of which it stands, takes what is below 1e-15 for nothing: this asks
    for equality in proportion to the values as well.
    """
    if not _is_near(ours, theirs, *rounding):
        return False
    if any(isinstance(side, (MatrixBase, MatrixExpr)) for side in (ours, theirs)):
        return True  # their items have been compared here
    try:
        return not _is_told_apart(ours.doit(), theirs.doit())
    except Exception:  # what cannot be evaluated is what the library says it is
        return True


def _is_told_apart(ours: Any, theirs: Any) -> bool:
    if any(grader.get_pct_val(side) is not None for side in (ours, theirs)):
        return False
    left, right = map(_exact, (ours, theirs))
    # Any values will do: terms that differ do not cancel at these.
    symbols = sorted(left.free_symbols | right.free_symbols, key=str)
    values = {symbol: Rational(9973 + 2 * place, 9931) for place, symbol in enumerate(symbols)}
    left, right = left.xreplace(values), right.xreplace(values)
    if isinstance(ours, Float) or isinstance(theirs, Float):
        return bool(abs(left - right).evalf() > _ROUNDING * max(abs(left).evalf(), abs(right).evalf()))
    try:
        return bool((left - right).evalf(5, maxn=_DIGITS, strict=True) != 0)
    except PrecisionExhausted:  # zero, as far as is known
        return False


def _exact(side: Any) -> Any:
    """Decimals as the fractions that they were written for."""
    return side.xreplace({number: Rational(str(number)) for number in side.atoms(Float)})


grader.sympy_numeric_eq = _is_same_value
for _answer, _expected in _WARM_UP:
    _is_equal(_answer, _expected)
