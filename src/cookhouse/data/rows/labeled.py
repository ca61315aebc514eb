"""Rows of single answers that are good or bad, and the pairs that a loss over pairs makes of them.

`prompt` and `completion`, or `messages` that end with the answer, and `label`, true or false.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cookhouse.chat import Message, is_empty
from cookhouse.data.rows.pairs import PreferenceRow, asked_in, named_row, said_in
from cookhouse.data.rows.reader import RowReader
from cookhouse.data.values import LeftOut
from cookhouse.errors import InputError

_VERDICTS = {"true": True, "false": False}


@dataclass(frozen=True, slots=True, kw_only=True)
class LabeledRow:
    """A prompt, an answer to it that is not empty, and whether it is a good one."""

    prompt: list[Message]
    completion: list[Message]
    is_good: bool
    source: str
    left_out: Sequence[LeftOut] = ()

    @property
    def prompts(self) -> tuple[list[Message], ...]:
        """The prompt."""
        return (self.prompt,)


def is_labeled(row: object) -> bool:
    """True if a row judges one answer by itself: `label` is true or false, in CSV as text."""
    return isinstance(row, Mapping) and _verdict(row) is not None


def labeled_from_row(row: object, source: str) -> LabeledRow:
    """A labeled answer from one row. Raises `InputError` as `source: reason`."""

    def parse(fields: Mapping[str, Any], reader: RowReader) -> LabeledRow:
        if not is_empty(fields.get("messages")):
            messages = said_in(reader, "messages", "user")
            asked, completion = messages[:-1], messages[-1:]
        elif not is_empty(fields.get("completion")):
            asked, completion = asked_in(reader, fields), said_in(reader, "completion", "assistant")
        else:
            raise InputError("a label of true or false is of a completion, or of messages that end with it")
        if not asked or completion[-1]["role"] != "assistant":
            raise InputError("completion must be an answer of the assistant to a prompt")
        return LabeledRow(
            prompt=reader.opened(asked),
            completion=completion,
            is_good=bool(_verdict(fields)),
            source=source,
            left_out=reader.left_out(source),
        )

    return named_row(row, source, parse)


def _verdict(row: Mapping[str, Any]) -> bool | None:
    label = row.get("label")
    return _VERDICTS.get(label.lower()) if isinstance(label, str) else label if isinstance(label, bool) else None


def matched(rows: Sequence[LabeledRow]) -> list[PreferenceRow]:
    """Each good answer with a bad one, in order; of what there is less, it begins again. So both kinds weigh the same,
    as https://arxiv.org/abs/2402.01306 advises where there are more of one.

    Raises:
        InputError: all are good, or all are bad.
    """
    good, bad = ([row for row in rows if row.is_good is each] for each in (True, False))
    if not good or not bad:
        raise InputError(
            f"all {len(rows)} labels are {'true' if good else 'false'}; learning from single answers needs good and "
            "bad ones"
        )
    count = max(len(good), len(bad))
    pairs = [(good[index % len(good)], bad[index % len(bad)]) for index in range(count)]
    return [
        PreferenceRow(
            prompt=one.prompt,
            chosen=one.completion,
            rejected=other.completion,
            rejected_prompt=other.prompt,
            source=f"{one.source} with {other.source}",
            left_out=(*one.left_out, *other.left_out),
        )
        for one, other in pairs
    ]
