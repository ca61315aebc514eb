"""Programming problems: the answer is Python, and its reward is what its tests say when a sandbox runs it."""

import asyncio
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from cookhouse.envs.problems.problem import FORMAT_COEF, ProblemEnv
from cookhouse.envs.prompting import Prompting
from cookhouse.grading import CodeTest, default_sandbox, extract_code, grade_code

CodeReward = Literal["all", "fraction"]
TIMEOUT_SECONDS = 6.0

_DEFINITION = re.compile(r"^\s*(async\s+)?def\s+\w+\s*\(", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeProblem:
    """Question, with the tests that the program must pass."""

    question: str
    tests: Sequence[CodeTest]
    source: str
    """Name of the data set, by which metrics are reported."""
    preamble: str = ""
    """Code that stands before the answer when it runs, such as the imports of the prompt."""
    is_fenced: bool = True
    """Whether the program must stand in a fenced block; otherwise an answer without one is taken as the program."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeGrading:
    """`all`: 1 if every test passes, else 0. `fraction`: share of the tests that pass. The timeout is for each test."""

    reward: CodeReward = "all"
    timeout_seconds: float = TIMEOUT_SECONDS


async def check_sandbox() -> None:
    """Raises InputError if programs could not run here, before anything is sampled for them."""
    await asyncio.to_thread(default_sandbox().isolation)


class CodeEnv(ProblemEnv):
    """Runs the answer's last block of Python against the tests of the problem, in the sandbox of this process."""

    def __init__(
        self,
        problem: CodeProblem,
        prompting: Prompting,
        grading: CodeGrading,
        *,
        format_coef: float = FORMAT_COEF,
    ) -> None:
        super().__init__(prompting, format_coef=format_coef)
        self.problem = problem
        self._grading = grading

    def get_question(self) -> str:
        return self.problem.question

    def get_expected(self) -> str:
        return f"a program that passes {len(self.problem.tests)} tests"

    def check_format(self, answer: str) -> bool:
        code = self._code(answer)
        return code is not None and (self.problem.is_fenced or _DEFINITION.search(code) is not None)

    async def check_answer(self, answer: str) -> float:
        code = self._code(answer)
        if code is None:
            return 0.0
        grade = await grade_code(
            f"{self.problem.preamble}{code}",
            self.problem.tests,
            timeout_seconds=self._grading.timeout_seconds,
            reward=self._grading.reward,
        )
        return grade.reward

    def _code(self, answer: str) -> str | None:
        code = extract_code(answer)
        return code if code is not None or self.problem.is_fenced else answer
