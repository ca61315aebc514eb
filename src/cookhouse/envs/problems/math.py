r"""Mathematics: GSM8K, MATH, DeepMath and Polaris. The answer stands in `\boxed{}` and is graded by value."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any

import chz

from cookhouse.data import HubSplit
from cookhouse.data.sources import known
from cookhouse.envs.builder import ConfigBuilder
from cookhouse.envs.dataset import EnvConfig, GroupDataset
from cookhouse.envs.problems.problem import FORMAT_COEF, ProblemEnv, ProblemGroupBuilder
from cookhouse.envs.prompting import Prompting
from cookhouse.envs.rows import read_problems, text_field
from cookhouse.errors import InputError, UnknownNameError
from cookhouse.grading import Grader, NamedGrader, by_value, extract_math_answer
from cookhouse.settings import GradingSettings

_INSTRUCTION = "Think step by step and write the final answer in \\boxed{}."


@dataclass(frozen=True, slots=True, kw_only=True)
class MathProblem:
    """A question and its answer, the bare value."""

    question: str
    answer: str
    source: str
    """Name of the data set, by which metrics are reported."""


class MathEnv(ProblemEnv):
    r"""The answer must stand in `\boxed{}` or after `####`; the grader gets what stands there, and nothing else."""

    def __init__(
        self,
        problem: MathProblem,
        prompting: Prompting,
        *,
        grader: Grader = by_value,
        format_coef: float = FORMAT_COEF,
    ) -> None:
        super().__init__(prompting, format_coef=format_coef)
        self.problem = problem
        self._grader = grader

    def get_question(self) -> str:
        return f"{self.problem.question}\n\n{_INSTRUCTION}"

    def get_expected(self) -> str:
        return self.problem.answer

    def check_format(self, answer: str) -> bool:
        return extract_math_answer(answer) is not None

    async def check_answer(self, answer: str) -> float:
        given = extract_math_answer(answer)
        return 0.0 if given is None else await self._grader(given, self.problem.answer)


Parse = Callable[[Mapping[str, Any]], MathProblem | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Split:
    hub: HubSplit
    parse: Parse


def parse_gsm8k(row: Mapping[str, Any]) -> MathProblem:
    """A problem of `question`, and an `answer` that ends in `#### N`."""
    _, mark, answer = text_field(row, "answer").rpartition("####")
    if not mark:
        raise InputError("the answer has no #### before its number")
    return MathProblem(question=text_field(row, "question"), answer=answer.strip().replace(",", ""), source="gsm8k")


def parse_solved(row: Mapping[str, Any], source: str) -> MathProblem | None:
    """A problem with a written solution; None if that boxes no answer."""
    answer = text_field(row, "answer") if row.get("answer") else extract_math_answer(text_field(row, "solution"))
    return MathProblem(question=text_field(row, "problem"), answer=answer, source=source) if answer else None


def _answered(row: Mapping[str, Any], source: str, question: str, answer: str) -> MathProblem:
    return MathProblem(question=text_field(row, question), answer=text_field(row, answer), source=source)


_MATH500 = _Split(hub=known.MATH500.train, parse=partial(parse_solved, source="math500"))
_SETS: Mapping[str, tuple[_Split, _Split]] = MappingProxyType(
    {
        "gsm8k": (
            _Split(hub=known.GSM8K.train, parse=parse_gsm8k),
            _Split(hub=known.GSM8K.test_split, parse=parse_gsm8k),
        ),
        "math": (_Split(hub=known.MATH.train, parse=partial(parse_solved, source="math")), _MATH500),
        "deepmath": (
            _Split(
                hub=known.DEEPMATH.train,
                parse=partial(_answered, source="deepmath", question="question", answer="final_answer"),
            ),
            _MATH500,
        ),
        "polaris": (
            _Split(
                hub=known.POLARIS.train,
                parse=partial(_answered, source="polaris", question="problem", answer="answer"),
            ),
            _MATH500,
        ),
    }
)


@chz.chz
class MathConfig(EnvConfig, GradingSettings):
    """A known set from the hub, or from files with the same fields. DeepMath and Polaris are evaluated on MATH-500."""

    has_several_turns = False

    dataset: str = chz.field(default="gsm8k", doc="gsm8k, math, deepmath or polaris.")
    dataset_path: str | None = chz.field(default=None, doc="JSONL with the set's fields; default: from the hub.")
    test_path: str | None = chz.field(default=None, doc="JSONL to evaluate on; default: from the hub.")

    async def build(self) -> tuple[GroupDataset[MathProblem], GroupDataset[MathProblem]]:
        """Read both sets; a problem of the test is never in the training set.

        Raises:
            InputError: the set or the grader is unknown, or a source cannot be read; a bad row is named.
        """
        if self.dataset not in _SETS:
            raise UnknownNameError("dataset", self.dataset, _SETS)
        grader = NamedGrader(self.grader)
        train_split, test_split = _SETS[self.dataset]
        test = read_problems(self.test_path or test_split.hub, test_split.parse)
        held_out = {problem.question for problem in test}
        read = read_problems(self.dataset_path or train_split.hub, train_split.parse)
        train = [problem for problem in read if problem.question not in held_out]
        asked = f'each question, then "{_INSTRUCTION}"'
        return self.train_set(train, partial(self._group, grader, self.group_size), asked=asked), self.test_set(
            test, partial(self._group, grader, 1)
        )

    def _group(self, grader: Grader, group_size: int, problem: MathProblem) -> ProblemGroupBuilder:
        make_env = partial(MathEnv, problem, self.prompting, grader=grader, format_coef=self.format_coef)
        return ProblemGroupBuilder(make_env=make_env, group_size=group_size, tags=(problem.source,))


GSM8K = ConfigBuilder(MathConfig, {"dataset": "gsm8k"})
MATH = ConfigBuilder(MathConfig, {"dataset": "math"})
DEEPMATH = ConfigBuilder(MathConfig, {"dataset": "deepmath"})
POLARIS = ConfigBuilder(MathConfig, {"dataset": "polaris"})
