"""Arithmetic: sums, differences and products whose answer is graded digit by digit.

The bundled problems are those of the embedded model's own world, worded as none of its pretraining text words them, so
that the model can do them and does not yet. Under the renderer `human_ai` the base model solves 9 % of the held-out
problems at temperature 1 and 23 % greedily, and stops by itself; under `qwen3_instruct` and `role_colon` it never
answers with a number at all, so that nothing could be learned by reward.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import chz

from cookhouse.assets import data_file
from cookhouse.envs.dataset import EnvConfig, GroupDataset
from cookhouse.envs.problems.problem import FORMAT_COEF, ProblemEnv, ProblemGroupBuilder
from cookhouse.envs.prompting import Prompting
from cookhouse.envs.rows import read_problems, text_field
from cookhouse.errors import InputError

_INTEGER = re.compile(r"-?\d{1,30}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ArithmeticProblem:
    """A question and the whole number that answers it."""

    question: str
    answer: int
    skill: str
    """`add`, `subtract` or `multiply`; metrics are reported by it."""


class ArithmeticEnv(ProblemEnv):
    """The whole answer must be the number, in digits; white space around it does not count."""

    def __init__(self, problem: ArithmeticProblem, prompting: Prompting, *, format_coef: float = FORMAT_COEF) -> None:
        super().__init__(prompting, format_coef=format_coef)
        self.problem = problem

    def get_question(self) -> str:
        return self.problem.question

    def get_expected(self) -> str:
        return str(self.problem.answer)

    def check_format(self, answer: str) -> bool:
        return _INTEGER.fullmatch(answer.strip()) is not None

    async def check_answer(self, answer: str) -> float:
        return float(self.check_format(answer) and int(answer.strip()) == self.problem.answer)


@chz.chz
class ArithmeticConfig(EnvConfig):
    """Arithmetic from the bundled files, or from files of `{"question", "answer", "skill"}` (skill may be left out)."""

    has_several_turns = False

    dataset_path: str | None = chz.field(default=None, doc="JSONL of problems to train on; default: the bundled ones.")
    test_path: str | None = chz.field(default=None, doc="JSONL of problems to evaluate on; default: the bundled ones.")

    async def build(self) -> tuple[GroupDataset[ArithmeticProblem], GroupDataset[ArithmeticProblem]]:
        """Read both files. Raises `InputError` for a bad row, by file and line."""
        train = read_problems(self.dataset_path or data_file("arithmetic/train.jsonl"), parse_arithmetic)
        test = read_problems(self.test_path or data_file("arithmetic/test.jsonl"), parse_arithmetic)
        return self.train_set(train, partial(self._group, self.group_size)), self.test_set(
            test, partial(self._group, 1)
        )

    def _group(self, group_size: int, problem: ArithmeticProblem) -> ProblemGroupBuilder:
        make_env = partial(ArithmeticEnv, problem, self.prompting, format_coef=self.format_coef)
        return ProblemGroupBuilder(make_env=make_env, group_size=group_size, tags=("arithmetic", problem.skill))


def parse_arithmetic(row: Mapping[str, Any]) -> ArithmeticProblem:
    """A problem of `question`, `answer` and, where there is one, `skill`."""
    answer = text_field(row, "answer").strip()
    if not _INTEGER.fullmatch(answer):
        raise InputError(f"answer must be a whole number, not {answer!r}")
    skill = text_field(row, "skill") if "skill" in row else "arithmetic"
    return ArithmeticProblem(question=text_field(row, "question"), answer=int(answer), skill=skill)
