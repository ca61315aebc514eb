"""samples/: what the weights answered to held-out problems, one file per evaluation."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from cookhouse.errors import InputError
from cookhouse.files import file_errors, write_whole
from cookhouse.report import RecordedAnswer
from cookhouse.runs.names import SAMPLES_FOLDER


def answers_path(folder: Path, step: int) -> Path:
    """The file of a run directory for the weights after `step` steps."""
    return folder / SAMPLES_FOLDER / f"{step:06d}.json"


def evaluated_steps(folder: Path) -> dict[int, Path]:
    """The files of answers in a run directory by the steps that the weights had taken, in their order."""
    found = folder.glob(f"{SAMPLES_FOLDER}/*.json")
    return dict(sorted((int(path.stem), path) for path in found if path.stem.isdecimal() and path.is_file()))


def write_answers(path: Path, answers: Sequence[RecordedAnswer]) -> None:
    """Keep answers. Raises `InputError` where they cannot be written."""
    with file_errors(path):
        path.parent.mkdir(exist_ok=True)
    write_whole(path, json.dumps([asdict(answer) for answer in answers], indent=1) + "\n")


def read_answers(path: Path) -> list[RecordedAnswer]:
    """Read what `write_answers` kept.

    Raises:
        InputError: the file holds something else.
    """
    try:
        return [answer_from_row(row) for row in json.loads(path.read_text(encoding="utf-8"))]
    except (ValueError, TypeError, RecursionError) as error:
        raise InputError(f"{path} does not hold answers ({error}); remove it") from error


def answer_from_row(row: Any) -> RecordedAnswer:
    """An answer as `asdict` wrote it. Raises `TypeError` or `ValueError` for anything else."""
    answer = RecordedAnswer(**{**row, "earlier": tuple((role, text) for role, text in row.get("earlier", ()))})
    if not all(isinstance(text, str) for text in (answer.prompt, answer.expected, answer.answer)):
        raise TypeError("prompt, expected and answer must be texts")
    if not all(isinstance(role, str) and isinstance(text, str) for role, text in answer.earlier):
        raise TypeError("earlier must be pairs of role and text")
    if not isinstance(answer.is_correct, bool) or not isinstance(answer.group, str | None):
        raise TypeError("is_correct must be true or false, and group a text")
    if answer.verdict not in (None, "wins", "draws", "loses"):
        raise TypeError("verdict must be wins, draws or loses")
    return answer
