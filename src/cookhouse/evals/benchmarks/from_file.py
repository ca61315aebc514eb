"""Benchmarks of files: a row asks something and says how its answer is graded.

    {"match": "exact", "ignore_case": true, "max_tokens": 32}
    {"question": "What is the capital of France?", "answer": "Paris"}
    {"question": "How many legs have two dogs?", "answer": 8, "match": "number"}

A first line without a question holds for all that follow, unless they say otherwise.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from itertools import chain, islice
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeAlias

from cookhouse.chat import Message, is_empty, shown_text
from cookhouse.data import DataSource, data_source, iter_rows, parse_each, prompt_from_row
from cookhouse.data.rows.names import in_our_case
from cookhouse.errors import InputError, UnknownNameError
from cookhouse.evals.benchmarks.attempts import Grade
from cookhouse.evals.benchmarks.benchmark import Benchmark, BenchmarkItem, GradeAnswer, choice_item
from cookhouse.evals.benchmarks.judge import Judge
from cookhouse.grading.matches import check_pattern, contains_text, has_pattern, is_text, number_in

MAX_ROWS = 100_000
_MAX_QUESTION_CHARACTERS = 200_000
_MAX_ANSWER_CHARACTERS = 10_000
_MAX_CHOICES = 100
_MAX_TOKENS = 1024
_CHOICE = "choice"
_QUESTIONS = ("question", "prompt", "instruction", "problem", "messages")
_READ_BY: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "ignore_case": ("exact", "contains"),
        "tolerance": ("number",),
        "choices": (_CHOICE,),
        "pattern": ("regex",),
    }
)
"""Options, each with the matches that read it."""
_OF_ITEM = ("answer", "match", "name", "id", "group", "skill", *_READ_BY)
_OF_FILE = ("match", "max_tokens", "system", *_READ_BY)
_IMPLIES = {"choices": _CHOICE, "pattern": "regex"}
Options: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class FileBenchmark(Benchmark):
    """The items of a file."""

    judge: Judge = field(default_factory=Judge)

    def read(self, source: DataSource) -> list[BenchmarkItem]:
        rows = iter_rows(source)
        first = list(islice(rows, 1))
        header = _header(first[0].value(), first[0].place) if first else None
        asked = list(islice(rows if header is not None else chain(first, rows), MAX_ROWS + 1))
        if len(asked) > MAX_ROWS:
            raise InputError(f"{source} has more than {MAX_ROWS:,} rows, which no benchmark needs; keep some of them")
        items = parse_each(asked, lambda row: _item(row.value(), row.place, header or {}, self.judge))
        if not items:
            raise InputError(f"{source} asks nothing; it needs rows of a question and its answer")
        return items


def file_benchmark(name: str) -> FileBenchmark:
    """The benchmark of a file, called as it is without its suffix.

    Raises:
        InputError: there is no such file, or its first line cannot be read.
    """
    source = data_source(Path(name))
    row = next(iter_rows(source), None)
    header = None if row is None else _header(row.value(), row.place)
    return FileBenchmark(
        name=re.sub(r"[^\w.-]+", "_", Path(name).stem) or "benchmark",
        source=name,
        parse=lambda row: _item(row, name, {}, Judge()),
        max_tokens=(header or {}).get("max_tokens", _MAX_TOKENS),
    )


def _header(row: object, place: str) -> Options | None:
    """Options in the first line for all that follow; None if it is an item itself. Raises `InputError`."""
    fields: Any = reduce(in_our_case, [(name,) for name in (*_QUESTIONS, *_OF_FILE)], row)
    if not isinstance(fields, Mapping) or any(name in fields for name in (*_QUESTIONS, "answer")):
        return None
    try:
        if unknown := next((name for name in fields if name not in _OF_FILE), None):
            raise UnknownNameError("setting of a benchmark's first line", str(unknown), _OF_FILE)
        max_tokens = fields.get("max_tokens", _MAX_TOKENS)
        if type(max_tokens) is not int or max_tokens < 1:
            raise InputError(f"max_tokens is {max_tokens!r:.80}; it must be a whole number above 0")
        if "match" in fields:
            _checked(fields["match"])
    except InputError as error:
        raise InputError(f"{place}: {error}") from error
    return fields


def _item(row: object, place: str, header: Options, judge: Judge) -> BenchmarkItem:
    """Item of a row. Raises `InputError` as `place: reason`."""
    if not isinstance(row, Mapping):
        raise InputError(f"{place}: a row must be an object, not {type(row).__name__}")
    given: Mapping[str, Any] = reduce(in_our_case, [(name,) for name in (*_QUESTIONS, *_OF_ITEM)], row)
    fields = {**header, **given}
    asked = {name: value for name, value in fields.items() if name not in (*_OF_ITEM, "max_tokens")}
    messages = prompt_from_row(asked, place).prompt
    try:
        if sum(len(shown_text(message)) for message in messages) > _MAX_QUESTION_CHARACTERS:
            raise InputError(f"the question has more than {_MAX_QUESTION_CHARACTERS:,} characters")
        # What a row brings for a match of its own goes before what the file says.
        implied = next((match for option, match in _IMPLIES.items() if option in given), None)
        match = _checked(given.get("match") or implied or fields.get("match", "exact"))
        for option in _READ_BY:
            if option in given and match not in _READ_BY[option]:
                raise InputError(
                    f"{option} is read by match={' or '.join(_READ_BY[option])}, and this row has match={match}"
                )
        named = next((str(fields[name]) for name in ("name", "id") if not is_empty(fields.get(name))), None)
        group = next((str(fields[name]) for name in ("group", "skill") if not is_empty(fields.get(name))), None)
        if match == _CHOICE:
            return _choice(messages, fields, named, group)
        expected, grade = _MATCHES[match](messages, fields, judge)
        return BenchmarkItem(messages=messages, expected=expected, grade=grade, name=named, group=group)
    except InputError as error:
        raise InputError(f"{place}: {error}") from error


Made: TypeAlias = tuple[str, GradeAnswer]
"""What is expected, for people, and what grades."""


def _exact(messages: Sequence[Message], fields: Options, judge: Judge) -> Made:
    del messages, judge
    return _by_text(fields, is_text)


def _contains(messages: Sequence[Message], fields: Options, judge: Judge) -> Made:
    del messages, judge
    return _by_text(fields, contains_text)


def _by_text(fields: Options, is_right: Callable[..., bool]) -> Made:
    accepted = _answers(fields)
    ignore_case = fields.get("ignore_case", False)
    if not isinstance(ignore_case, bool):
        raise InputError(f"ignore_case must be true or false, not {ignore_case!r:.80}")

    async def grade(answer: str) -> Grade:
        return Grade(correct=float(any(is_right(answer, each, ignore_case=ignore_case) for each in accepted)))

    return " or ".join(accepted), grade


def _number(messages: Sequence[Message], fields: Options, judge: Judge) -> Made:
    del messages, judge
    accepted = _answers(fields)
    numbers = [number_in(each) for each in accepted]
    tolerance = fields.get("tolerance", 0)
    if isinstance(tolerance, bool) or not isinstance(tolerance, int | float) or not 0 <= tolerance < float("inf"):
        raise InputError(f"tolerance must be a number from 0 on, not {tolerance!r:.80}")
    if stray := next((text for text, number in zip(accepted, numbers, strict=True) if number is None), None):
        raise InputError(f"answer is {stray[:80]!r}, and match=number needs a number")

    async def grade(answer: str) -> Grade:
        found = number_in(answer)
        is_right = found is not None and any(
            found == each if not tolerance else abs(float(found) - float(each)) <= tolerance
            for each in numbers
            if each is not None
        )
        return Grade(correct=float(is_right), is_well_formed=found is not None)

    return " or ".join(accepted), grade


def _regex(messages: Sequence[Message], fields: Options, judge: Judge) -> Made:
    del messages, judge
    pattern = fields.get("pattern")
    if not isinstance(pattern, str) or not pattern:
        raise InputError("match=regex needs a pattern, a regular expression that a right answer has")
    check_pattern(pattern)

    async def grade(answer: str) -> Grade:
        is_found = await has_pattern(answer, pattern)
        return Grade(correct=float(is_found is True), is_well_formed=is_found is not None)

    return f"text with {pattern}", grade


def _judge(messages: Sequence[Message], fields: Options, judge: Judge) -> Made:
    expected = _answers(fields)
    if len(expected) > 1:
        raise InputError("match=judge compares with one answer; keep the best")
    judge.is_asked = True

    async def grade(answer: str) -> Grade:
        return await judge(messages, answer, expected[0])

    return expected[0], grade


_MATCHES: Mapping[str, Callable[[Sequence[Message], Options, Judge], Made]] = MappingProxyType(
    {
        "exact": _exact,
        "contains": _contains,
        "number": _number,
        "regex": _regex,
        "judge": _judge,
    }
)


def _checked(match: object) -> str:
    if not isinstance(match, str) or match not in (*_MATCHES, _CHOICE):
        raise UnknownNameError("match", str(match)[:80], [*_MATCHES, _CHOICE])
    return match


def _choice(messages: Sequence[Message], fields: Options, name: str | None, group: str | None) -> BenchmarkItem:
    choices, answer = fields.get("choices"), fields.get("answer")
    if not isinstance(choices, list) or len(choices) > _MAX_CHOICES:
        raise InputError(f"match=choice needs choices, a list of 2 to {_MAX_CHOICES} texts")
    if isinstance(answer, str):
        letter = ord(answer) - ord("A") if re.fullmatch("[A-Z]", answer) else -1
        place = choices.index(answer) if answer in choices else letter
        if not 0 <= place < len(choices):
            raise InputError(
                f"answer is {answer[:80]!r}, which is none of the choices; give one, its letter from A on, or its "
                "place from 0 on"
            )
        return choice_item(messages, choices, place, name=name, group=group)
    if type(answer) is not int:
        raise InputError("answer must be one of the choices, its letter from A on, or its place from 0 on")
    return choice_item(messages, choices, answer, name=name, group=group)


def _answers(fields: Options) -> list[str]:
    """The answers that are right, each a text."""
    given = fields.get("answer")
    answers = given if isinstance(given, list) else [given]
    if not answers or any(isinstance(each, bool) or not isinstance(each, str | int | float) for each in answers):
        raise InputError("answer must be text or a number, or a list of those that are right")
    texts = [str(each).strip() for each in answers]
    if not all(texts) or len(texts) > _MAX_CHOICES or any(len(text) > _MAX_ANSWER_CHARACTERS for text in texts):
        raise InputError(
            f"answer must say something, in at most {_MAX_ANSWER_CHARACTERS:,} characters; of several there may be "
            f"{_MAX_CHOICES}"
        )
    return texts
