"""What a terminal obeys is spelled out; everything else is left alone."""

import pytest

from cookhouse.errors import printable


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("\x1b[2J\x1b]0;title\x07", "\\x1b[2J\\x1b]0;title\\x07"),
        ("\x9b31m a\rb\u202ec", "\\x9b31m a\\rb\\u202ec"),
        ("half a pair \ud83d", "half a pair \\ud83d"),
        ("line\nbreak\ttab", "line\nbreak\\ttab"),
        ("Grüße 👋 日本\u3000語 10\u00a0km :x: [b]", "Grüße 👋 日本\u3000語 10\u00a0km :x: [b]"),
    ],
)
def test_only_what_a_terminal_obeys_is_spelled_out(text: str, expected: str) -> None:
    assert printable(text, keep="\n") == expected
