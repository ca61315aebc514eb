"""The benchmarks that are built in, each over the environment that also trains on its problems."""

from collections.abc import Mapping
from functools import partial
from typing import Any

from cookhouse.assets import data_file
from cookhouse.data.sources import known
from cookhouse.envs import ArithmeticEnv, CodeEnv, CodeGrading, MathEnv, ProblemEnv, Prompting
from cookhouse.envs.problems.arithmetic import parse_arithmetic
from cookhouse.envs.problems.code import check_sandbox
from cookhouse.envs.problems.math import parse_gsm8k, parse_solved
from cookhouse.envs.problems.python_benchmarks import parse_humaneval, parse_mbpp
from cookhouse.errors import InputError
from cookhouse.evals.benchmarks.attempts import Grade
from cookhouse.evals.benchmarks.benchmark import Benchmark, BenchmarkItem
from cookhouse.grading.ifeval import parse_instructions, score_instructions

_ANYONE = Prompting(model_name="")
"""Asks in messages, whatever chat format they are then put in."""
_GRADING = CodeGrading(timeout_seconds=15.0)
_SLOW = CodeGrading(timeout_seconds=60.0)
_SLOW_MBPP = {123}
"""Problems of which even the reference solution takes up to 20 s."""


def problem_item(env: ProblemEnv, *, name: str | None = None, group: str | None = None) -> BenchmarkItem:
    """A problem that an environment asks and grades, as an item."""

    async def grade(answer: str) -> Grade:
        return Grade(correct=await env.check_answer(answer), is_well_formed=env.check_format(answer))

    return BenchmarkItem(
        messages=env.prompting.ask(env.get_question()),
        expected=env.get_expected(),
        grade=grade,
        name=name,
        group=group,
    )


def _arithmetic(row: Mapping[str, Any]) -> BenchmarkItem:
    problem = parse_arithmetic(row)
    return problem_item(ArithmeticEnv(problem, _ANYONE), group=problem.skill)


def _gsm8k(row: Mapping[str, Any]) -> BenchmarkItem:
    return problem_item(MathEnv(parse_gsm8k(row), _ANYONE))


def _math500(row: Mapping[str, Any]) -> BenchmarkItem | None:
    problem = parse_solved(row, "math500")
    if problem is None:
        return None
    return problem_item(MathEnv(problem, _ANYONE), name=_text(row, "unique_id"), group=_text(row, "subject"))


def _humaneval(row: Mapping[str, Any]) -> BenchmarkItem:
    return problem_item(CodeEnv(parse_humaneval(row), _ANYONE, _GRADING), name=_text(row, "task_id"))


def _mbpp(row: Mapping[str, Any]) -> BenchmarkItem:
    grading = _SLOW if row.get("task_id") in _SLOW_MBPP else _GRADING
    return problem_item(CodeEnv(parse_mbpp(row), _ANYONE, grading), name=_text(row, "task_id"))


def _ifeval(row: Mapping[str, Any]) -> BenchmarkItem:
    instructions = parse_instructions(row)
    question = row["prompt"]
    if not isinstance(question, str):
        raise InputError("prompt must be a text")

    async def grade(answer: str) -> Grade:
        scores = score_instructions(instructions, answer)
        shares = {
            f"instructions_{how}": sum(followed) / len(followed)
            for how, followed in (("strict", scores.strict), ("loose", scores.loose))
        }
        return Grade(
            correct=float(scores.prompt_strict), metrics={"correct_loose": float(scores.prompt_loose), **shares}
        )

    return BenchmarkItem(
        messages=[{"role": "user", "content": question}],
        expected=f"an answer that follows {', '.join(row['instruction_id_list'])}",
        grade=grade,
        name=_text(row, "key"),
    )


def _text(row: Mapping[str, Any], key: str) -> str | None:
    value = row.get(key)
    return None if value is None else str(value)


ARITHMETIC = Benchmark(
    name="arithmetic", source=str(data_file("arithmetic/test.jsonl")), parse=_arithmetic, max_tokens=16
)
GSM8K = Benchmark(name="gsm8k", source=known.GSM8K.test_split, parse=_gsm8k)
MATH500 = Benchmark(name="math500", source=known.MATH500.train, parse=_math500, max_tokens=2048)
_code = partial(Benchmark, prepare=check_sandbox)
HUMANEVAL = _code(name="humaneval", source=known.HUMANEVAL.train, parse=_humaneval)
MBPP = _code(name="mbpp", source=known.MBPP.test_split, parse=_mbpp)
IFEVAL = Benchmark(name="ifeval", source=known.IFEVAL.train, parse=_ifeval, max_tokens=1280)
