"""One-line Python functions: the programming problems that the embedded model can learn.

Each is a description in a wording that no pretraining text has, and three calls with what they must return. Under the
renderer `human_ai` the base model passes the tests of about one held-out problem in five at temperature 1.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

import chz

from cookhouse.assets import data_file
from cookhouse.envs.dataset import EnvConfig, GroupDataset
from cookhouse.envs.problems.code import TIMEOUT_SECONDS, CodeEnv, CodeGrading, CodeProblem, CodeReward, check_sandbox
from cookhouse.envs.problems.problem import ProblemGroupBuilder
from cookhouse.envs.rows import read_problems, text_field
from cookhouse.errors import InputError
from cookhouse.grading import FunctionTest

_NAME = "python_functions"


@chz.chz
class PythonFunctionsConfig(EnvConfig):
    """Functions from the bundled files, or from files of `{"question", "entry_point", "cases"}`; a case is
    `{"arguments": [...], "expected": ...}`.
    """

    has_several_turns = False

    dataset_path: str | None = chz.field(default=None, doc="JSONL of problems to train on; default: the bundled ones.")
    test_path: str | None = chz.field(default=None, doc="JSONL of problems to evaluate on; default: the bundled ones.")
    code_reward: CodeReward = chz.field(default="all", doc="all: every test must pass; fraction: share that passes.")
    test_seconds: float = chz.field(default=TIMEOUT_SECONDS, doc="Time that each test may take.")

    async def build(self) -> tuple[GroupDataset[CodeProblem], GroupDataset[CodeProblem]]:
        """Read both files. Raises `InputError` for a bad row, by file and line, or where programs cannot run."""
        await check_sandbox()
        train = read_problems(self.dataset_path or data_file(f"{_NAME}/train.jsonl"), _parse)
        test = read_problems(self.test_path or data_file(f"{_NAME}/test.jsonl"), _parse)
        return self.train_set(train, partial(self._group, self.group_size)), self.test_set(
            test, partial(self._group, 1)
        )

    def _group(self, group_size: int, problem: CodeProblem) -> ProblemGroupBuilder:
        grading = CodeGrading(reward=self.code_reward, timeout_seconds=self.test_seconds)
        make_env = partial(CodeEnv, problem, self.prompting, grading, format_coef=self.format_coef)
        return ProblemGroupBuilder(make_env=make_env, group_size=group_size, tags=(_NAME,))


def _parse(row: Mapping[str, Any]) -> CodeProblem:
    entry_point, cases = text_field(row, "entry_point"), row["cases"]
    if not isinstance(cases, list) or not cases or not all(isinstance(case, Mapping) for case in cases):
        raise InputError('cases must be a list of {"arguments": [...], "expected": ...}, at least one')
    tests = [
        FunctionTest(entry_point=entry_point, arguments=case["arguments"], expected=case["expected"]) for case in cases
    ]
    return CodeProblem(question=text_field(row, "question"), tests=tests, source=_NAME, is_fenced=False)
