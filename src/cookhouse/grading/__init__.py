"""Grading of answers: by name, mathematics, code by running its tests in a sandbox, and by preference models."""

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
from cookhouse.grading.graders import GRADERS, Grader, NamedGrader, by_value
from cookhouse.grading.math import extract_math_answer, grade_math
from cookhouse.grading.preference_model import (
    EQUAL,
    CompleterPreferenceModel,
    GenerativePreferenceModel,
    Judgment,
    PreferenceModel,
    compare_texts,
)
from cookhouse.grading.sandbox import default_sandbox

__all__ = [
    "EQUAL",
    "GRADERS",
    "AssertTest",
    "CodeGrade",
    "CodeTest",
    "CompleterPreferenceModel",
    "FunctionTest",
    "GenerativePreferenceModel",
    "Grader",
    "Judgment",
    "NamedGrader",
    "PreferenceModel",
    "StdinTest",
    "TestResult",
    "Verdict",
    "by_value",
    "compare_texts",
    "default_sandbox",
    "extract_code",
    "extract_math_answer",
    "grade_code",
    "grade_math",
    "parse_code_test",
]
