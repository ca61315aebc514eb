"""The blocks of code in a page, and what the tests are told about them.

A comment before a block is for the tests, and not seen by a reader:

    <!-- tests: max_steps=2 -->    added to every `cookhouse run` and `runs resume` of the block
    <!-- tests: embedded -->       the run starts an engine of its own; all others share one that is served
    <!-- tests: only read -->      commands are parsed with their settings, and Python is compiled; nothing is run
    <!-- tests: refused -->        the command ends with an error
    <!-- tests: needs MODULE -->   from here on the page is for who has it; the tests of others skip it
    <!-- tests: said -->           each line of the block is part of what the block before it printed

A second word after the language names the file that the block is the content of.
"""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from markdown_it import MarkdownIt

_COMMENT = re.compile(r"^<!-- tests: (?P<told>.+?) -->$")
_SIGNATURES = "<!-- signatures: "
"""What stands before a block that `scripts.docs.signatures` writes."""


@dataclass(frozen=True, kw_only=True)
class Block:
    """A fenced block."""

    language: str
    file: str | None
    text: str
    line: int
    """Of its first line of content, from 1."""
    told: str | None
    """What the comment before it says."""


def blocks_of(page: Path) -> Iterator[Block]:
    """Those of a page, from the first; directives and signatures are not among them."""
    told, is_written = None, False
    for token in MarkdownIt().parse(page.read_text(encoding="utf-8")):
        if token.type == "html_block":
            match = _COMMENT.match(token.content.strip())
            told, is_written = match["told"] if match else None, token.content.startswith(_SIGNATURES)
        elif token.type == "fence":
            language, _, file = token.info.strip().partition(" ")
            assert token.map is not None
            if not language.startswith("{") and not is_written:
                yield Block(language=language, file=file or None, text=token.content, line=token.map[0] + 2, told=told)
            told, is_written = None, False
        elif token.level == 0:
            told, is_written = None, False


@dataclass(frozen=True, kw_only=True)
class Command:
    """A line typed in a shell."""

    words: tuple[str, ...]
    variables: dict[str, str]
    """Set for this command alone, before its first word."""


def commands_of(text: str) -> Iterator[Command]:
    """Those of a shell block: comments left out, lines that end in a backslash joined."""
    for line in text.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        variables: dict[str, str] = {}
        while words and re.match(r"[A-Z_]+=", words[0]):
            name, _, value = words.pop(0).partition("=")
            variables[name] = value
        if words:
            yield Command(words=tuple(words), variables=variables)
