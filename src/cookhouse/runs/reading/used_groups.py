"""rollouts/steps.jsonl: which groups of rollouts a step was trained on."""

import json
from pathlib import Path

from cookhouse.errors import InputError
from cookhouse.runs.names import ROLLOUTS_FOLDER
from cookhouse.runs.reading.ranges import open_file

MAX_LINE_BYTES = 8 * 2**20


def used_groups(folder: Path, step: int) -> list[tuple[int, int]] | None:
    """Of the groups that a step, counted from 0, was trained on: the step that each was planned for, and its number in
    that step's batch. None where nothing is recorded of the step.

    Raises:
        InputError: the file holds something else.
    """
    path = folder / ROLLOUTS_FOLDER / "steps.jsonl"
    begin = f'{{"step": {step},'.encode()
    try:
        with open_file(path) as file:
            while line := file.readline(MAX_LINE_BYTES):
                if line.startswith(begin) and line.endswith(b"\n"):
                    return _used(path, line)
    except FileNotFoundError:
        return None
    return None


def _used(path: Path, line: bytes) -> list[tuple[int, int]]:
    try:
        used = [(planned, number) for planned, number in json.loads(line)["used"]]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise _unreadable(path) from error
    if not all(type(part) is int and part >= 0 for pair in used for part in pair):
        raise _unreadable(path)
    return used


def _unreadable(path: Path) -> InputError:
    return InputError(f"{path} does not say which groups a step was trained on; remove it")
