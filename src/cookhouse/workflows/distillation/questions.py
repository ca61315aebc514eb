"""Questions to the teacher: prompts of any data set, as the teacher and as the student see them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

from cookhouse.algorithms.base.rows import SplitRows, split_rows
from cookhouse.chat import Message, Renderer, text_of
from cookhouse.data import BadRows, DataSource, PromptRow, read_questions
from cookhouse.data.rows.remarks import null_remarks
from cookhouse.envs import evenly_spaced
from cookhouse.errors import InputError
from cookhouse.settings import OffPolicyDistillationSettings
from cookhouse.workflows.distillation.samples import TeacherQuestion

_TEXT = "{text}"
_MAX_PROMPT_BYTES = 1 << 20


@dataclass(frozen=True, kw_only=True)
class TeacherPrompt:
    """The teacher's prompt, which the student does not see."""

    text: str

    @property
    def is_template(self) -> bool:
        """True if the last question stands in it; else it is the system message."""
        return _TEXT in self.text

    def applied(self, messages: Sequence[Message]) -> list[Message]:
        """The messages that the teacher sees."""
        if not self.is_template:
            return [{"role": "system", "content": self.text}, *messages]
        *before, last = messages
        return [*before, {**last, "content": self.text.replace(_TEXT, text_of(last))}]


def read_teacher_prompt(given: str | None) -> TeacherPrompt | None:
    """The prompt of a setting: a text, or what is in @FILE.

    Raises:
        InputError: it is empty, or the file cannot be read.
    """
    if given is None:
        return None
    text = given
    if given.startswith("@"):
        path = Path(given[1:])
        try:
            if path.stat().st_size > _MAX_PROMPT_BYTES:
                raise InputError(f"{path} is larger than {_MAX_PROMPT_BYTES >> 20} MiB; that is no prompt")
            text = path.read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            raise InputError(f"teacher_prompt={given} cannot be read: {error}") from error
    if not text.strip():
        raise InputError("teacher_prompt is empty; give what the teacher is to be told, or leave it out")
    return TeacherPrompt(text=text)


QuestionRows: TypeAlias = SplitRows[PromptRow]
"""What a run reads."""


def read_rows(
    config: OffPolicyDistillationSettings, sources: Mapping[str, DataSource], prompt: TeacherPrompt | None
) -> QuestionRows:
    """Read what `sources` names.

    Raises:
        InputError: something cannot be read, or holds nothing to train on.
        BadRowsError: rows cannot be used, and are not to be left out.
    """
    bad = BadRows(config.on_bad_row)
    rows = {name: read_questions(source, bad=bad) for name, source in sources.items()}
    notes = [*bad.notes, *null_remarks([row for some in rows.values() for row in some], what="prompts")]
    if prompt is not None and not prompt.is_template:
        given = sum(_has_system_message(row) for name, some in rows.items() if name.startswith("train") for row in some)
        if given:
            notes.append(
                f"{given:,} rows have a system message of their own, where the teacher's prompt would stand, and are "
                "not trained on"
            )
        rows = {name: [row for row in some if not _has_system_message(row)] for name, some in rows.items()}
    split = split_rows(config, rows, seed=config.seed)
    return replace(split, test=evenly_spaced(split.test, config.num_eval), notes=[*notes, *split.notes])


def _has_system_message(row: PromptRow) -> bool:
    return row.prompt[0]["role"] == "system"


def questions_of(
    rows: Sequence[PromptRow], renderer: Renderer, teacher: Renderer, prompt: TeacherPrompt | None
) -> list[TeacherQuestion]:
    """Prompts as tokens. Raises `InputError` for one that a chat format cannot write, as `source: reason`."""
    questions = []
    for number, row in enumerate(rows):
        messages = row.prompt if prompt is None else prompt.applied(row.prompt)
        try:
            student_tokens = renderer.build_generation_prompt(row.prompt).to_ints()
            teacher_tokens = teacher.build_generation_prompt(messages).to_ints()
        except InputError as error:
            raise InputError(f"{row.source}: {error}") from error
        questions.append(
            TeacherQuestion(
                number=number,
                messages=row.prompt,
                student_tokens=student_tokens,
                teacher_tokens=teacher_tokens,
                source=row.source,
            )
        )
    return questions
