"""Benchmarks: where the rows of one are, and what is asked and how it is graded in each of them."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from cookhouse.chat import Message
from cookhouse.data import DataSource, HubSplit
from cookhouse.envs import read_problems
from cookhouse.errors import InputError
from cookhouse.evals.benchmarks.attempts import Grade
from cookhouse.naming import OpenSet
from cookhouse.settings.judge import BENCHMARK_FILES

GradeAnswer: TypeAlias = Callable[[str], Awaitable[Grade]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemText:
    """One problem, as people read it."""

    messages: Sequence[Message]
    """What is asked; a system message of the evaluation's stands before it."""
    expected: str
    """What a right answer would be, for people who read transcripts."""
    name: str | None = None
    """What the benchmark calls the problem, if it does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchmarkItem(ItemText):
    """One problem, with how its answers are graded."""

    grade: GradeAnswer
    """Of the text of an answer. It raises nothing because of what the model wrote."""
    group: str | None = None
    """What kind of problem it is; `correct` is reported for each kind as well."""
    choices: Sequence[str] = ()
    """If there are any, nothing is sampled: the answer is the likeliest of them. `correct_norm` is then what the
    likeliest by its characters is worth: the one with the greatest logprob over length.
    """


def choice_item(
    messages: Sequence[Message],
    choices: Sequence[str],
    right: int,
    *,
    name: str | None = None,
    group: str | None = None,
) -> BenchmarkItem:
    """A question with choices, of which that at the place `right` is the answer.

    Raises:
        InputError: there are not two different choices or more, or none at that place.
    """
    are_texts = isinstance(choices, list | tuple) and all(isinstance(each, str) for each in choices)
    if not are_texts or not 2 <= len(set(choices)) == len(choices):
        raise InputError(f"choices must be a list of two or more different texts, not {choices!r:.200}")
    if type(right) is not int or not 0 <= right < len(choices):
        raise InputError(f"the right choice is {right!r:.80}; it must be from 0 to {len(choices) - 1}")
    expected = choices[right]

    async def grade(answer: str) -> Grade:
        return Grade(correct=float(answer == expected))

    return BenchmarkItem(
        messages=messages, expected=expected, grade=grade, name=name, group=group, choices=tuple(choices)
    )


ParseItem: TypeAlias = Callable[[Mapping[str, Any]], BenchmarkItem | None]


@dataclass(frozen=True, kw_only=True)
class Benchmark:
    """A set of problems by name."""

    name: str
    """Metrics stand under it."""
    source: str | HubSplit
    """Where its rows are unless somebody says: a file, a data set by name, or a split of the hub."""
    parse: ParseItem
    """What a row asks; None leaves the row out. Raises `InputError`, or misses a key, where it is none."""
    max_tokens: int = 1024
    """Of an answer, unless somebody says."""
    prepare: Callable[[], Awaitable[None]] | None = None
    """Awaited before anything is asked; raises `InputError` where answers could not be graded here."""

    def read(self, source: DataSource) -> list[BenchmarkItem]:
        """All of its items. Raises `InputError` where it cannot be read, `BadRowsError` for rows of another."""
        return read_problems(source, self.parse)


BENCHMARKS: OpenSet[Benchmark] = OpenSet(
    kind="benchmark",
    group="cookhouse.benchmarks",
    builtin={
        name: f"cookhouse.evals.benchmarks.built_in:{name.upper()}"
        for name in ("arithmetic", "gsm8k", "math500", "humaneval", "mbpp", "ifeval")
    },
    check=lambda thing: thing if isinstance(thing, Benchmark) else None,
    wants="a benchmark is an object of cookhouse.evals.Benchmark",
    of_files=dict.fromkeys(BENCHMARK_FILES, "cookhouse.evals.benchmarks.from_file:file_benchmark"),
)
