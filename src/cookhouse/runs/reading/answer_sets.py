"""Answers of a model item by item: in an evaluation that stands alone, or at a step of a training run."""

import json
import threading
from collections import OrderedDict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

from cookhouse.errors import InputError
from cookhouse.evals import Attempt, SampledAnswer
from cookhouse.evals.benchmarks.attempts import Key
from cookhouse.report import RecordedAnswer
from cookhouse.runs.names import ATTEMPT_ANSWERS_FILE, ATTEMPT_QUESTIONS_FILE
from cookhouse.runs.reading.attempts import AttemptIndex, index_attempts, read_line
from cookhouse.runs.samples import evaluated_steps, read_answers

HELD_OUT: Final = "held out"
"""What the evaluations of a training run ask, where a benchmark has its name."""
_MAX_SAMPLES_BYTES: Final = 1 << 26
_MAX_KEPT: Final = 8
_MAX_SHOWN: Final = 20


@dataclass(frozen=True, kw_only=True)
class ItemQuestion:
    """Question of an item."""

    asked: Sequence[tuple[str, str]]
    """Role and text."""
    expected: str
    name: str | None = None


@dataclass(frozen=True, kw_only=True)
class ItemAnswer:
    """One answer to it."""

    text: str
    outcome: str
    """`right`, `wrong`, `malformed` or `failed`; or `wins`, `draws` or `loses` where answers are compared."""


class AnswerSet(Protocol):
    """Answers to items, whose texts are read where they are asked for."""

    @property
    def scores(self) -> Mapping[Any, float]:
        """From 0 to 1 by item, in their order."""

    @property
    def problems(self) -> Sequence[str]:
        """Notes on what cannot be read."""

    def benchmark(self, item: Any) -> str: ...
    def number(self, item: Any) -> int:
        """Its identity among others of its benchmark."""

    def group(self, item: Any) -> str | None: ...
    def question(self, item: Any) -> Hashable:
        """Key that is equal where the same is asked; None where that is not known."""

    def text(self, item: Any) -> ItemQuestion | None:
        """Question; None where that is not known. Raises `InputError` where it cannot be read."""

    def answers(self, item: Any) -> Sequence[ItemAnswer]:
        """One for each sample. Raises `InputError` where they cannot be read."""


class AttemptAnswers:
    """Of an evaluation that stands alone: items are the places in benchmarks."""

    def __init__(self, folder: Path, index: AttemptIndex) -> None:
        self._folder, self._index = folder, index
        graded = sorted(key for key in index.grades if key in index.answers)
        self.scores = {key: _attempt(key, (), index).correct for key in graded}
        self.problems = index.problems

    def benchmark(self, item: Key) -> str:
        return item[0]

    def number(self, item: Key) -> int:
        return item[1]

    def group(self, item: Key) -> str | None:
        asked = self._index.questions.get(item)
        return None if asked is None else asked.group

    def question(self, item: Key) -> Hashable:
        asked = self._index.questions.get(item)
        return None if asked is None else asked.digest

    def text(self, item: Key) -> ItemQuestion | None:
        asked = self._index.questions.get(item)
        if asked is None:
            return None
        try:
            row = json.loads(read_line(self._folder / ATTEMPT_QUESTIONS_FILE, asked.span))
            messages = [(str(role), str(text)) for role, text in row["asked"]]
            name = row.get("name")
            return ItemQuestion(asked=messages, expected=str(row["expected"]), name=None if name is None else str(name))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise InputError(f"{ATTEMPT_QUESTIONS_FILE} does not hold item {item[1]} ({error!r:.200})") from error

    def answers(self, item: Key) -> Sequence[ItemAnswer]:
        try:
            row = json.loads(read_line(self._folder / ATTEMPT_ANSWERS_FILE, self._index.answers[item]))
            sampled = [SampledAnswer(**value) for value in row["values"]]
            outcomes = _attempt(item, sampled, self._index).outcomes
        except InputError:
            raise
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise InputError(f"{ATTEMPT_ANSWERS_FILE} does not hold item {item[1]} ({error!r:.200})") from error
        return [
            ItemAnswer(text=str(answer.text) if answer.error is None else f"no answer: {answer.error}", outcome=outcome)
            for answer, outcome in zip(sampled, outcomes, strict=True)
        ]


class HeldOutAnswerSet:
    """Of an evaluation of a training run: items are what was asked, and of the same the first, the second and so on."""

    def __init__(self, path: Path) -> None:
        self.problems: Sequence[str] = ()
        found: Sequence[RecordedAnswer] = ()
        try:
            if path.stat().st_size > _MAX_SAMPLES_BYTES:
                raise InputError(f"{path.name} is larger than {_MAX_SAMPLES_BYTES >> 20} MiB")
            found = read_answers(path)
        except (OSError, InputError) as error:
            self.problems = [str(error)]
        self._answers: dict[Hashable, tuple[int, RecordedAnswer]] = {}
        seen: dict[Hashable, int] = {}
        for number, answer in enumerate(found):
            count = seen[answer.question] = seen.get(answer.question, 0) + 1
            self._answers[answer.question, count] = number, answer
        self.scores = {item: float(answer.is_correct is True) for item, (_, answer) in self._answers.items()}

    def benchmark(self, item: Hashable) -> str:
        del item
        return HELD_OUT

    def number(self, item: Hashable) -> int:
        return self._answers[item][0]

    def group(self, item: Hashable) -> str | None:
        return self._answers[item][1].group

    def question(self, item: Hashable) -> Hashable:
        return item

    def text(self, item: Hashable) -> ItemQuestion | None:
        answer = self._answers[item][1]
        return ItemQuestion(asked=[*answer.earlier, ("user", answer.prompt)], expected=answer.expected)

    def answers(self, item: Hashable) -> Sequence[ItemAnswer]:
        answer = self._answers[item][1]
        outcome = answer.verdict or ("right" if answer.is_correct is True else "wrong")
        return [ItemAnswer(text=answer.answer, outcome=outcome)]


def _attempt(key: Key, answers: Sequence[SampledAnswer], index: AttemptIndex) -> Attempt:
    return Attempt(place=key[1], answers=answers, grades=index.grades[key])


class AnswerSetReader:
    """Reads answers again and again; of the evaluations that were asked for last it keeps what they have so far."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: OrderedDict[Path, AttemptIndex] = OrderedDict()

    def index(self, folder: Path) -> AttemptIndex:
        """Attempts so far of an evaluation that stands alone."""
        with self._lock:
            found = self._kept[folder] = index_attempts(folder, self._kept.pop(folder, None))
            while len(self._kept) > _MAX_KEPT:
                self._kept.popitem(last=False)
            return found

    def read(self, folder: Path, step: int | None) -> AnswerSet:
        """Answers of the weights after so many steps of a run; None: in an evaluation that stands alone.

        Raises:
            InputError: there is no such evaluation.
        """
        if step is None:
            return AttemptAnswers(folder, self.index(folder))
        paths = evaluated_steps(folder)
        if step not in paths:
            known = ", ".join(map(str, list(paths)[:_MAX_SHOWN])) or "none"
            raise InputError(f"{folder.name} has no answers after step {step}; it has some after: {known}")
        return HeldOutAnswerSet(paths[step])


def is_evaluation(folder: Path) -> bool:
    """True if a run is an evaluation that stands alone and has answers."""
    return (folder / ATTEMPT_ANSWERS_FILE).is_file()
