"""The page of a benchmark: what was asked and answered, by what came of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cookhouse.evals import Attempt, Outcome
from cookhouse.pages import document

if TYPE_CHECKING:
    from cookhouse.evals import ItemText  # loads the SDK: nobody waits for it who lists runs

_MAX_SHOWN = 200
"""Answers of one outcome; the files of the evaluation have all."""


@dataclass(frozen=True, kw_only=True)
class _Transcript:
    title: str
    asked: Sequence[tuple[str, str]]
    """Role and text."""
    expected: str
    answer: str
    logprobs: Mapping[str, float]
    """By choice."""


@dataclass(frozen=True, kw_only=True)
class _Section:
    outcome: str
    count: int
    transcripts: Sequence[_Transcript]


def transcripts_page(
    items: "Mapping[int, ItemText]", attempts: Sequence[Attempt], *, title: str, log: str = "answers.jsonl"
) -> str:
    """One self-contained page; all text is escaped, control characters are spelled out, and no script can run. Of many
    answers with one outcome it shows 200, evenly spaced; `log` is the file next to the report that has all.
    """
    found: dict[Outcome, list[tuple[Attempt, int]]] = {outcome: [] for outcome in Outcome}
    for attempt in attempts:
        for sample, outcome in enumerate(attempt.outcomes):
            found[outcome].append((attempt, sample))
    sections = [
        _Section(
            outcome=outcome,
            count=len(some),
            transcripts=[_transcript(items[attempt.place], attempt, sample) for attempt, sample in _spread(some)],
        )
        for outcome, some in found.items()
        if some
    ]
    return document(
        "transcripts.html", title=title, sections=sections, log=log, num_answers=sum(map(len, found.values()))
    )


def _spread(some: Sequence[tuple[Attempt, int]]) -> list[tuple[Attempt, int]]:
    kept = min(_MAX_SHOWN, len(some))
    return [some[index * len(some) // kept] for index in range(kept)]


def _transcript(item: "ItemText", attempt: "Attempt", sample: int) -> _Transcript:
    from cookhouse.chat import text_of

    answer, grade = attempt.answers[sample], attempt.grades[sample]
    several = f", sample {sample + 1}" if len(attempt.answers) > 1 else ""
    said = [f"{name} {value:.4g}" for name, value in grade.metrics.items()]
    cut = ["cut off"] if answer.is_cut else []
    name = f" ({item.name})" if item.name is not None else ""
    return _Transcript(
        title=f"Item {attempt.place}{name}{several}: {', '.join([f'correct {grade.correct:g}', *cut, *said])}",
        asked=[(message["role"], text_of(message)) for message in item.messages],
        expected=item.expected,
        answer=answer.text if answer.error is None else f"no answer: {answer.error}",
        logprobs=answer.logprobs,
    )
