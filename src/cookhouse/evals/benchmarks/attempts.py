"""Attempts at the items of a benchmark: what was answered, and what it was worth."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum


@dataclass(frozen=True, slots=True, kw_only=True)
class SampledAnswer:
    """One answer of a model, or why there is none."""

    text: str = ""
    is_cut: bool = False
    """Whether it did not end by itself, or is not well formed."""
    error: str | None = None
    """Why there is none."""
    logprobs: Mapping[str, float] = field(default_factory=dict)
    """Of each choice as the whole answer, where there are some; in nats."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grade:
    """Grade of one answer."""

    correct: float
    """How right it is, from 0 to 1."""
    is_well_formed: bool = True
    """Whether it could be graded at all."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    """Further figures, each reported as its mean over the items that have it."""


class Outcome(StrEnum):
    """Outcome of one answer."""

    RIGHT = "right"
    WRONG = "wrong"
    MALFORMED = "malformed"
    """Not right, and cut off or without the form that it is graded by."""
    FAILED = "failed"
    """There is none. It counts as not right."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """An item with its answers, and a grade for each; that of an answer that failed is 0."""

    place: int
    """Of the item, among all of the benchmark."""
    answers: Sequence[SampledAnswer]
    grades: Sequence[Grade]

    @property
    def outcomes(self) -> list[Outcome]:
        """Of each answer."""
        return [_outcome(answer, grade) for answer, grade in zip(self.answers, self.grades, strict=True)]

    @property
    def correct(self) -> float:
        """Mean over the answers."""
        return sum(grade.correct for grade in self.grades) / len(self.grades)

    @property
    def num_right(self) -> int:
        return sum(outcome is Outcome.RIGHT for outcome in self.outcomes)


def _outcome(answer: SampledAnswer, grade: Grade) -> Outcome:
    if answer.error is not None:
        return Outcome.FAILED
    if grade.correct >= 1.0:
        return Outcome.RIGHT
    return Outcome.MALFORMED if answer.is_cut or not grade.is_well_formed else Outcome.WRONG


Key = tuple[str, int]
"""A benchmark's name, and the place of an item in it."""


class AttemptLog:
    """Answers and grades as they become known, in memory."""

    def __init__(self) -> None:
        self.answers: dict[Key, Sequence[SampledAnswer]] = {}
        self.grades: dict[Key, Sequence[Grade]] = {}

    def add_answers(self, key: Key, answers: Sequence[SampledAnswer]) -> None:
        """Keep the answers to an item."""
        self.answers[key] = answers

    def add_grades(self, key: Key, grades: Sequence[Grade]) -> None:
        """Keep the grades of those answers."""
        self.grades[key] = grades

    def attempts(self, name: str) -> list[Attempt]:
        """At the items of a benchmark, in their order, of those that have been answered and graded."""
        keys = sorted(key for key in self.grades if key[0] == name and key in self.answers)
        return [Attempt(place=key[1], answers=self.answers[key], grades=self.grades[key]) for key in keys]
