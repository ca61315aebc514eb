"""Record of a teacher's own answers to the held-out problems, kept in the run directory."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from cookhouse.chat import Message, parse_messages
from cookhouse.errors import InputError
from cookhouse.files import write_whole
from cookhouse.report import RecordedAnswer
from cookhouse.runs.samples import answer_from_row


@dataclass(frozen=True, kw_only=True)
class TeacherRecord:
    """Metrics and answers of teachers; empty where they were not asked."""

    metrics: Mapping[str, float] = field(default_factory=dict)
    answers: Sequence[RecordedAnswer] = field(default_factory=list)
    prompts: Sequence[Sequence[Message]] = field(default_factory=list)
    """Whole, of those whose answers a student is asked for by their text."""


def write_teacher_record(path: Path, record: TeacherRecord) -> None:
    """Keep it. Raises `InputError` where it cannot be written."""
    row: dict[str, Any] = {"metrics": dict(record.metrics), "answers": [asdict(answer) for answer in record.answers]}
    row["prompts"] = [list(prompt) for prompt in record.prompts]
    write_whole(path, json.dumps(row, indent=1) + "\n")


def read_teacher_record(path: Path) -> TeacherRecord | None:
    """Read the record that was kept; None if there is none.

    Raises:
        InputError: the file holds something else.
    """
    if not path.is_file():
        return None
    try:
        row = json.loads(path.read_text(encoding="utf-8"))
        answers = [answer_from_row(answer) for answer in row["answers"]]
        metrics = {str(name): float(value) for name, value in row["metrics"].items()}
        prompts = [parse_messages(prompt) for prompt in row.get("prompts", ())]
        return TeacherRecord(metrics=metrics, answers=answers, prompts=prompts)
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise InputError(f"{path} does not hold a teacher's answers ({error}); remove it") from error
