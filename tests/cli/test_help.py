"""Every `--help` as it is rendered. Catches marks of the formatter that are shown, examples that run together, a
sentence that is cut, and lines that are wider than the terminal.
"""

import re
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
import typer

from cookhouse.cli.main import app

_SEEN_OF_RECIPES = ("supervised", "rl", "eval")
"""The others' helps are made in the same way, of the same settings."""


def _commands(command: Any, words: tuple[str, ...] = ("cookhouse",)) -> Iterator[tuple[str, Any]]:
    yield " ".join(words), command
    if hasattr(command, "list_commands"):
        context = command.context_class(command, info_name=words[-1])
        for name in command.list_commands(context):
            if words[-1] != "run" or name in _SEEN_OF_RECIPES:
                yield from _commands(command.get_command(context, name), (*words, name))


@cache
def _helps(width: int) -> dict[str, str]:
    found = {}
    for words, command in _commands(typer.main.get_command(app)):
        context = command.context_class(command, info_name=words, terminal_width=width, max_content_width=width)
        found[words] = command.get_help(context)
    return found


@pytest.mark.parametrize("width", [80, 160])
def test_every_help_is_rendered_as_it_was_meant(width: int) -> None:
    helps = _helps(width)
    assert len(helps) > 40
    for words, text in helps.items():
        lines = text.splitlines()
        assert [line for line in lines if len(line) > width or re.search(r"[\b\r\t]|\\[a-z]", line)] == [], words
        assert [line for line in lines if re.search(r"\[\[|\]\]|\.\.\.[]}]\.\.\.", line)] == [], words
        commands = text.partition("Commands:")[2].splitlines()
        assert [line for line in commands if line.endswith("...")] == [], words


@pytest.mark.parametrize("width", [80, 160])
def test_examples_stand_on_lines_of_their_own(width: int) -> None:
    seen = 0
    for words, text in _helps(width).items():
        body = text.partition("\n\n")[2].partition("\nArguments:")[0].partition("\nOptions:")[0]
        for command in re.findall(r"(?<!`)\bcookhouse (?!on |loads)[a-z]+ [^\n]*", body):
            assert command.count("cookhouse ") == 1, (words, command)
        seen += len(re.findall(r"^    cookhouse \S+", body, re.MULTILINE))
    assert seen >= 15
