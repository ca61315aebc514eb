"""Attempts on disk: each answer and each grade a line of its file, there from when it is known."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from cookhouse.chat import text_of
from cookhouse.errors import InputError
from cookhouse.evals import AttemptLog, BenchmarkItem, Grade, Key, LoadedBenchmark, SampledAnswer
from cookhouse.files import append_line, write_whole
from cookhouse.runs import attempt_row
from cookhouse.runs.names import ATTEMPT_ANSWERS_FILE, ATTEMPT_GRADES_FILE, ATTEMPT_QUESTIONS_FILE

_MAX_CHARACTERS = 20_000
"""Of each text of a question that is kept."""


class AttemptFiles(AttemptLog):
    """Files of attempts: none is asked or graded a second time, whatever ended the evaluation.

    Raises:
        InputError: what lies in the folder is no evaluation's.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder
        for key, values in _rows(folder / ATTEMPT_ANSWERS_FILE):
            self.answers[key] = [_made(SampledAnswer, value, folder) for value in values]
        for key, values in _rows(folder / ATTEMPT_GRADES_FILE):
            self.grades[key] = [_made(Grade, value, folder) for value in values]

    def add_answers(self, key: Key, answers: Sequence[SampledAnswer]) -> None:
        self._append(ATTEMPT_ANSWERS_FILE, key, answers)
        super().add_answers(key, answers)

    def add_grades(self, key: Key, grades: Sequence[Grade]) -> None:
        self._append(ATTEMPT_GRADES_FILE, key, grades)
        super().add_grades(key, grades)

    def _append(self, file: str, key: Key, values: Sequence[SampledAnswer | Grade]) -> None:
        row = {"benchmark": key[0], "item": key[1], "values": [asdict(value) for value in values]}
        append_line(self._folder / file, json.dumps(row))


def write_questions(folder: Path, benchmarks: Sequence[LoadedBenchmark]) -> None:
    """Keep what is asked, for whoever reads the answers without the benchmark: a line for each item.

    Raises:
        InputError: the disk is full or may not be written.
    """
    rows = [_question(loaded.name, place, item) for loaded in benchmarks for place, item in loaded.items.items()]
    write_whole(folder / ATTEMPT_QUESTIONS_FILE, "".join(json.dumps(row) + "\n" for row in rows))


def _question(benchmark: str, place: int, item: BenchmarkItem) -> dict[str, Any]:
    return {
        "benchmark": benchmark,
        "item": place,
        "name": item.name,
        "group": item.group,
        "expected": _cut(item.expected),
        "asked": [[message["role"], _cut(text_of(message))] for message in item.messages],
    }


def _cut(text: str) -> str:
    num_more = len(text) - _MAX_CHARACTERS
    return text if num_more <= 0 else f"{text[:_MAX_CHARACTERS]}… ({num_more:,} more characters)"


def _rows(path: Path) -> Iterator[tuple[Key, Sequence[Mapping[str, Any]]]]:
    if not path.is_file():
        return
    # What a crash left at the end, without a newline, is no line.
    for number, line in enumerate(path.read_bytes().split(b"\n")[:-1], start=1):
        try:
            yield attempt_row(line)
        except (ValueError, KeyError, TypeError) as error:
            raise InputError(
                f"{path}:{number} is no line of an evaluation ({error!r}); remove it, and the item is asked again"
            ) from error


def _made(kind: Any, values: Mapping[str, Any], folder: Path) -> Any:
    try:
        return kind(**values)
    except TypeError as error:
        raise InputError(
            f"{folder} holds answers of another version of cookhouse ({error}); name another log_path"
        ) from error
