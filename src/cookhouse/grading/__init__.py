"""Grading of answers: mathematics, and code by running its tests in a sandbox."""

from cookhouse.grading.code import (
    AssertTest,
    CodeGrade,
    CodeTest,
    FunctionTest,
    StdinTest,
    TestResult,
    Verdict,
    extract_code,
    grade_code,
    parse_code_test,
)
from cookhouse.grading.math import extract_math_answer, grade_math
from cookhouse.grading.sandbox import default_sandbox

__all__ = [
    "AssertTest",
    "CodeGrade",
    "CodeTest",
    "FunctionTest",
    "StdinTest",
    "TestResult",
    "Verdict",
    "default_sandbox",
    "extract_code",
    "extract_math_answer",
    "grade_code",
    "grade_math",
    "parse_code_test",
]
