"""Rows that spell marks of the chat format: they are letters, and may have been meant as marks."""

from collections.abc import Iterable, Iterator, Sequence

from cookhouse.chat import Encoder, Message, shown_text, thinking_of
from cookhouse.data.rows.labeled import LabeledRow
from cookhouse.data.rows.pairs import ComparisonRow, PreferenceRow, PromptRow
from cookhouse.data.rows.shapes import Conversation
from cookhouse.telemetry import ResultNote

Row = Conversation | PreferenceRow | ComparisonRow | LabeledRow | PromptRow
_NUM_SHOWN = 3


def mark_remarks(rows: Iterable[Row], encoder: Encoder, *, what: str = "conversations") -> list[str]:
    """Remarks on the rows that spell marks: their number, the marks, and the first place; empty if none does. `what` is
    what messages call all of them.
    """
    names = encoder.mark_names
    seen: dict[str, None] = {}
    sources: list[str] = []
    num_rows = 0
    for row in rows:
        num_rows += 1
        found = {match[0]: None for text in _texts(row) for match in names.finditer(text)}
        if found:
            sources.append(row.source)
            seen |= found
    if not sources:
        return []
    shown = ", ".join([*seen][:_NUM_SHOWN]) + (" …" if len(seen) > _NUM_SHOWN else "")
    return [
        ResultNote(
            f"{len(sources):,} of {num_rows:,} {what} spell marks of the chat format or special tokens ({shown}) in "
            "their text: these are read as letters, shown with a · in them, and not as marks; if a row is already "
            f"written in a chat format, give its messages without the marks; the first is {sources[0]}"
        )
    ]


def _texts(row: Row) -> Iterator[str]:
    for messages in _conversations(row):
        for message in messages:
            yield shown_text(message)
            yield thinking_of(message)
    if isinstance(row, Conversation) and row.text is not None:
        yield row.text


def _conversations(row: Row) -> Sequence[Sequence[Message]]:
    match row:
        case Conversation():
            return (row.messages,)
        case PreferenceRow():
            return (*row.prompts, row.chosen, row.rejected)
        case ComparisonRow():
            return (row.prompt, row.completion_a, row.completion_b)
        case LabeledRow():
            return (row.prompt, row.completion)
        case PromptRow():
            return (row.prompt,)
