"""Sections of calls, as DeepSeek and Kimi write them."""

import pytest

from cookhouse.chat.encoding import Piece, Special
from cookhouse.chat.tool_calls import CallSection, read_call

START, END, CALL, SEP, END_CALL = map(Special, ("<calls>", "</calls>", "<call>", "<sep>", "</call>"))
SECTION = CallSection(start=START, end=END, call=CALL, separator=SEP, end_call=END_CALL)


@pytest.mark.parametrize(
    ("pieces", "text"),
    [
        ([CALL, "f", SEP, "{broken", END_CALL], "<call>f<sep>{broken</call>"),
        ([CALL, "f", END_CALL], "<call>f</call>"),
        ([CALL, "f", SEP, '{"a": '], '<call>f<sep>{"a": '),
        (["junk"], "junk"),
    ],
)
def test_a_broken_call_keeps_its_marks_and_is_written_as_it_was(pieces: list[Piece], text: str) -> None:
    """Would catch marks lost, or one added to a call that was cut."""
    message = SECTION.read(["So. ", START, *pieces, END], read_call)
    assert [call["text"] for call in message["unparsed_tool_calls"]] == [text]
    written = SECTION.write(message, [])
    assert written == [START, *pieces, END]
    assert [isinstance(piece, Special) for piece in written[1:-1]] == [isinstance(piece, Special) for piece in pieces]
