"""Rows of HumanEval and MBPP as programming problems."""

import builtins
import re
from collections.abc import Mapping
from typing import Any

from cookhouse.envs.problems.code import CodeProblem
from cookhouse.envs.rows import text_field
from cookhouse.errors import InputError
from cookhouse.grading import AssertTest

_COMPLETE = "Complete the function. Answer with all of its code in one ```python block.\n\n"
_WRITE = "Answer with all of the code in one ```python block. It must pass these tests:\n\n"


def parse_humaneval(row: Mapping[str, Any]) -> CodeProblem:
    """A problem of `prompt`, `entry_point` and `test`."""
    prompt, entry_point = text_field(row, "prompt"), text_field(row, "entry_point")
    test = AssertTest(code=f"check({entry_point})", setup=text_field(row, "test"), names=[entry_point])
    return CodeProblem(
        question=f"{_COMPLETE}```python\n{prompt.strip()}\n```",
        tests=[test],
        source="humaneval",
        # Imports and helpers of the prompt, which answers often leave out.
        preamble=prompt[: prompt.index(f"def {entry_point}")] if f"def {entry_point}" in prompt else "",
    )


def parse_mbpp(row: Mapping[str, Any]) -> CodeProblem:
    """A problem of `text` (or `prompt`, as in the sanitized set), `code`, `test_list` and, where there is one,
    `test_setup_code`.
    """
    tests = row["test_list"]
    if not isinstance(tests, list) or not tests or not all(isinstance(test, str) for test in tests):
        raise InputError("test_list must be a list of assertions, at least one")
    setup = text_field(row, "test_setup_code") if row.get("test_setup_code") else ""
    # Some solutions are named as built-ins are (`sum`), which the tests then mean.
    defined = re.findall(r"^def (\w+)", text_field(row, "code"), re.MULTILINE)
    names = [name for name in defined if hasattr(builtins, name)]
    question = text_field(row, "text" if "text" in row else "prompt")
    shown = "\n".join(tests)
    return CodeProblem(
        question=f"{question}\n\n{_WRITE}```python\n{shown}\n```",
        tests=[AssertTest(code=shown, setup=setup, names=names)],
        source="mbpp",
    )
