"""The reference solutions of HumanEval and MBPP grade as correct."""

import asyncio
import builtins
import json
import re
from pathlib import Path
from typing import Any

import pytest

from cookhouse.grading import AssertTest, CodeTest, grade_code
from cookhouse.grading.sandbox import LocalSandbox

pytestmark = pytest.mark.anyio


async def test_human_eval(shared: Path, sandbox: LocalSandbox) -> None:
    """Catches a harness that changes what tests or values mean; a grader that is too strict lowers every score."""
    rows = _read(shared / "data/humaneval/HumanEval.jsonl")
    failed = await _failed(rows, "prompt", "canonical_solution", _human_eval_tests, sandbox)
    assert len(rows) == 164
    assert failed == []


@pytest.mark.slow
async def test_mbpp(shared: Path, sandbox: LocalSandbox) -> None:
    """The same; also tests that build objects of the solution's classes (367, 927). 123 takes longer than 20 s."""
    rows = _read(shared / "data/mbpp/mbpp.jsonl")
    failed = await _failed(rows, "code", None, _mbpp_tests, sandbox)
    assert len(rows) == 974
    assert [row["task_id"] for row in failed if row["task_id"] != 123] == []


async def test_a_wrong_solution_of_each_problem_fails(shared: Path, sandbox: LocalSandbox) -> None:
    """Catches a harness that passes what it did not run."""
    empty = {"canonical_solution": "    return None\n"}
    rows = [row | empty for row in _read(shared / "data/humaneval/HumanEval.jsonl")]
    failed = await _failed(rows, "prompt", "canonical_solution", _human_eval_tests, sandbox)
    assert len(failed) == 164


def _human_eval_tests(row: dict[str, Any]) -> list[CodeTest]:
    """The prompt is trusted: it defines functions that some tests use beside the one under test."""
    name = row["entry_point"]
    return [AssertTest(code=f"{row['test']}\ncheck({name})", setup=row["prompt"], names=[name])]


def _mbpp_tests(row: dict[str, Any]) -> list[CodeTest]:
    """Some solutions are named as built-ins are (`sum`), which the tests then mean."""
    defined = re.findall(r"^def (\w+)", row["code"], re.MULTILINE)
    names = [name for name in defined if hasattr(builtins, name)]
    return [AssertTest(code="\n".join(row["test_list"]), setup=row["test_setup_code"], names=names)]


async def _failed(
    rows: list[dict[str, Any]], first: str, second: str | None, make_tests: Any, sandbox: LocalSandbox
) -> list[dict[str, Any]]:
    async def passes(row: dict[str, Any]) -> bool:
        seconds = 1.0 if row["task_id"] == 123 else 30.0
        code = row[first] + (row[second] if second is not None else "")
        return (await grade_code(code, make_tests(row), timeout_seconds=seconds, sandbox=sandbox)).passed

    results = await asyncio.gather(*(passes(row) for row in rows))
    return [row for row, passed in zip(rows, results, strict=True) if not passed]


def _read(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
