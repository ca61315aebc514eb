"""Questions to the teacher: prompts of any data set, as the teacher and as the student see them."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from cookhouse import algorithms as alg
from cookhouse.chat import Message, Renderer, text_of
from cookhouse.data import BadRows, DataSource, PromptRow, null_remarks, read_questions
from cookhouse.envs import evenly_spaced
from cookhouse.errors import InputError
from cookhouse.models.tokenizers import get_tokenizer
from cookhouse.runs import Preview
from cookhouse.settings import OffPolicyDistillationSettings

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


@dataclass(frozen=True, kw_only=True)
class QuestionRows(alg.SplitRows[PromptRow]):
    """Prompts that a run reads, and the teacher's own."""

    teacher_prompt: TeacherPrompt | None


def read_rows(config: OffPolicyDistillationSettings, sources: Mapping[str, DataSource]) -> QuestionRows:
    """Read what `sources` names, and the teacher's prompt. With one, answers of held-out rows are left out: what is
    distilled is what the teacher does with it, whatever the data say.

    Raises:
        InputError: something cannot be read, or holds nothing to train on.
        BadRowsError: rows cannot be used, and are not to be left out.
    """
    prompt = read_teacher_prompt(config.teacher_prompt)
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
    split = alg.split_rows(config, rows, seed=config.seed)
    test = evenly_spaced(split.test, config.num_eval)
    return QuestionRows(
        train=split.train,
        test=test if prompt is None else [replace(row, answer=None) for row in test],
        notes=[*notes, *split.notes],
        teacher_prompt=prompt,
    )


def _has_system_message(row: PromptRow) -> bool:
    return row.prompt[0]["role"] == "system"


@dataclass(frozen=True, kw_only=True)
class TeacherQuestion:
    """A prompt, as the student and as the teacher are asked it."""

    number: int
    """Its place among all of them, on which the seed of its answers hangs."""
    row: PromptRow
    """As the student is asked."""
    student_tokens: Sequence[int]
    teacher_tokens: Sequence[int]


def questions_of(
    rows: Sequence[PromptRow], student: Renderer, teacher: Renderer, prompt: TeacherPrompt | None
) -> list[TeacherQuestion]:
    """Prompts as tokens. Raises `InputError` for one that a chat format cannot write, as `source: reason`."""
    questions = []
    for number, row in enumerate(rows):
        messages = row.prompt if prompt is None else prompt.applied(row.prompt)
        try:
            student_tokens = student.build_generation_prompt(row.prompt).to_ints()
            teacher_tokens = teacher.build_generation_prompt(messages).to_ints()
        except InputError as error:
            raise InputError(f"{row.source}: {error}") from error
        questions.append(
            TeacherQuestion(number=number, row=row, student_tokens=student_tokens, teacher_tokens=teacher_tokens)
        )
    return questions


@dataclass(frozen=True, kw_only=True)
class QuestionBatch:
    """Questions of one step, in one epoch."""

    questions: Sequence[TeacherQuestion]
    epoch: int


class QuestionDataset:
    """Batches of questions, in an order that the seed and the epoch decide; what does not fill another makes a last,
    smaller one. Raises `InputError` where there are none.
    """

    def __init__(self, questions: Sequence[TeacherQuestion], *, batch_size: int, seed: int) -> None:
        if not questions:
            raise InputError("there is no prompt to ask the teacher; see what the data holds")
        self.questions = questions
        self._batch_size = batch_size
        self._seed = seed
        self.set_epoch(0)

    def set_epoch(self, epoch: int) -> None:
        """Put them into an epoch's order."""
        self._epoch = epoch
        self._order = list(range(len(self.questions)))
        random.Random(f"{self._seed}/{epoch}").shuffle(self._order)

    def get_batch(self, index: int) -> QuestionBatch:
        """A batch of the present epoch."""
        chosen = self._order[index * self._batch_size : (index + 1) * self._batch_size]
        return QuestionBatch(questions=[self.questions[i] for i in chosen], epoch=self._epoch)

    def __len__(self) -> int:
        return -(-len(self.questions) // self._batch_size)


@dataclass(frozen=True, kw_only=True)
class Questions:
    """Prompts as tokens: those to train on, in batches, and those held out."""

    train: QuestionDataset
    held_out: Sequence[TeacherQuestion]
    """Asked in evaluations; empty: nothing is evaluated."""
    context_tokens: int | None
    """Context length of the model, prompt and answer together, in tokens; None if it is not known here."""


def preview(questions: Questions, model_name: str) -> list[Preview]:
    """The first prompt as the teacher and as the student see it; nothing of either is trained on."""
    first, decode = questions.train.questions[0], get_tokenizer(model_name).decode
    seen = dict.fromkeys([tuple(first.teacher_tokens), tuple(first.student_tokens)])
    return [[(str(decode(list(tokens))), False)] for tokens in seen]
