"""DeepCoder: competition problems with tests by standard input or function call; HumanEval to evaluate on."""

import json
import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import chz

from cookhouse.data.sources import known
from cookhouse.envs.dataset import EnvConfig, GroupDataset
from cookhouse.envs.problems.code import TIMEOUT_SECONDS, CodeEnv, CodeGrading, CodeProblem, CodeReward, check_sandbox
from cookhouse.envs.problems.problem import ProblemGroupBuilder
from cookhouse.envs.problems.python_benchmarks import parse_humaneval
from cookhouse.envs.rows import read_problems, text_field
from cookhouse.errors import InputError
from cookhouse.grading import CodeTest, FunctionTest, StdinTest, parse_code_test
from cookhouse.grading.code import read_json
from cookhouse.grading.harness.plain import dumps

TRAIN = known.DEEPCODER.train
TEST = known.DEEPCODER.test_split
HUMANEVAL = known.HUMANEVAL.train

_INSTRUCTION = (
    "Write a Python program that solves the problem. Think first, then answer with the whole program in one ```python "
    "block."
)
_INTEGER = re.compile(r"-?[0-9]{1,18}")
_KINDS = {"stdin_stdout": "stdin", "function_call": "functional"}


@chz.chz
class DeepCoderConfig(EnvConfig):
    """DeepCoder from the hub, or from files with the same fields; evaluated on HumanEval, or on its own test set."""

    has_several_turns = False

    dataset_path: str | None = chz.field(default=None, doc="JSONL with DeepCoder's fields; default: from the hub.")
    test_path: str | None = chz.field(default=None, doc="JSONL to evaluate on; default: from the hub.")
    test_on: str = chz.field(default="humaneval", doc="humaneval, or deepcoder (its codeforces problems).")
    max_tests: int = chz.field(default=15, doc="Tests of a problem that are run, those with the longest input first.")
    code_reward: CodeReward = chz.field(default="all", doc="all: every test must pass; fraction: share that passes.")
    test_seconds: float = chz.field(default=TIMEOUT_SECONDS, doc="Time that each test may take.")

    async def build(self) -> tuple[GroupDataset[CodeProblem], GroupDataset[CodeProblem]]:
        """Read both sets. Rows without a test that can be run are left out, with a warning.

        Raises:
            InputError: a setting is unusable, a source cannot be read, or programs cannot run here.
        """
        if self.test_on not in ("humaneval", "deepcoder"):
            raise InputError(f"test_on is {self.test_on!r}; it must be humaneval or deepcoder")
        if self.max_tests < 1:
            raise InputError(f"max_tests is {self.max_tests}; it must be at least 1")
        await check_sandbox()
        parse = partial(parse_deepcoder, max_tests=self.max_tests)
        train = read_problems(self.dataset_path or TRAIN, parse)
        if self.test_on == "humaneval":
            test = read_problems(self.test_path or HUMANEVAL, parse_humaneval)
        else:
            test = read_problems(self.test_path or TEST, parse)
        asked = f'"{_INSTRUCTION}", then each problem'
        return self.train_set(train, partial(self._group, self.group_size), asked=asked), self.test_set(
            test, partial(self._group, 1)
        )

    def _group(self, group_size: int, problem: CodeProblem) -> ProblemGroupBuilder:
        grading = CodeGrading(reward=self.code_reward, timeout_seconds=self.test_seconds)
        make_env = partial(CodeEnv, problem, self.prompting, grading, format_coef=self.format_coef)
        return ProblemGroupBuilder(make_env=make_env, group_size=group_size, tags=(problem.source,))


def parse_deepcoder(row: Mapping[str, Any], *, max_tests: int) -> CodeProblem | None:
    """A problem of `problem`, `tests` and perhaps `starter_code`; None if none of its tests can be run."""
    tests = sorted(_tests(row), key=_input_length, reverse=True)[:max_tests]
    question = text_field(row, "problem")
    starter = row.get("starter_code")
    if starter:
        question += f"\n\nStart from this code:\n```python\n{starter}\n```"
    return CodeProblem(question=f"{_INSTRUCTION}\n\n{question}", tests=tests, source="deepcoder") if tests else None


def _tests(row: Mapping[str, Any]) -> list[CodeTest]:
    """Tests in any of the forms that the parts of the data set have; those that cannot be read are left out."""
    tests = row["tests"]
    try:
        tests = read_json(tests) if isinstance(tests, str) else tests
        metadata = row.get("metadata") or {}
        metadata = json.loads(metadata) if isinstance(metadata, str) else metadata
    except ValueError:
        return []
    if isinstance(tests, Mapping):
        keys = {"testtype": "functional", "fn_name": tests["fn_name"]} if tests.get("fn_name") else {}
        pairs = zip(tests.get("inputs", ()), tests.get("outputs", ()), strict=False)
        tests = [{"input": given, "output": expected, **keys} for given, expected in pairs]
    if not isinstance(tests, list):
        return []
    return [test for raw in tests if isinstance(raw, Mapping) and (test := _test({"metadata": metadata, **raw}))]


def _test(raw: Mapping[str, Any]) -> CodeTest | None:
    kind = raw.get("testtype") or raw.get("type") or "stdin"
    name = raw.get("fn_name")
    try:
        if name and isinstance(raw["input"], Sequence) and not isinstance(raw["input"], str):
            return FunctionTest(
                entry_point=name, arguments=_with_whole_keys(raw["input"]), expected=_only(raw["output"])
            )
        metadata = {**(raw["metadata"] or {}), **({"func_name": name} if name else {})}
        return parse_code_test({**raw, "testtype": _KINDS.get(kind, kind), "metadata": metadata})
    except (InputError, KeyError, IndexError, TypeError):
        return None


def _only(output: Any) -> Any:
    """The expected value, which mostly stands in a list of its own."""
    return output[0] if isinstance(output, list) and len(output) == 1 else output


def _with_whole_keys(arguments: Sequence[Any]) -> Sequence[Any]:
    """A first argument whose keys are integers as JSON writes them gets these, as the judges of APPS and TACO do it."""
    first = arguments[0] if arguments else None
    if isinstance(first, dict) and all(isinstance(key, str) and _INTEGER.fullmatch(key) for key in first):
        return [{int(key): value for key, value in first.items()}, *arguments[1:]]
    return arguments


def _input_length(test: CodeTest) -> int:
    if isinstance(test, FunctionTest):
        return len(dumps(list(test.arguments)))
    return len(test.input) if isinstance(test, StdinTest) else 0
