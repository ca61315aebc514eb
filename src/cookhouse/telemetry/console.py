"""Lines for a person: on a terminal they break between words, otherwise they never break."""

import re
import shlex

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

_CONTINUED = " \\"
_INDENT = "    "
_COMMAND = "cookhouse run "
_LEAST_CELLS = 24
"""Of a text that stands behind a label; with less room it begins its lines at the edge."""


def make_console(*, stderr: bool = False) -> Console:
    """A console that prints texts as they are: `[b]` and `:x:` in a data set stand for themselves."""
    return Console(highlight=False, markup=False, emoji=False, soft_wrap=True, stderr=stderr)


def say(console: Console, text: str | Text, style: str | None = None) -> None:
    """Print lines. A word that is longer than a line stays whole, for the terminal to break."""
    lines = text if isinstance(text, Text) else Text(text)
    if console.is_terminal:
        lines = Text("\n").join(wrapped(lines, console.width))
    console.print(lines, style=style, soft_wrap=True)


def say_fact(console: Console, label: str, fact: str, style: str | None = None) -> None:
    """Print a text behind a label, which is padded by the caller; the lines of the text stand below each other, unless
    it has a word that is whole only at the edge, such as a path.
    """
    start = cell_len(label) + 1
    longest = max([_LEAST_CELLS, *map(cell_len, fact.split())])
    if console.is_terminal and console.width - start >= longest:
        lines = [line.plain for line in wrapped(Text(fact), console.width - start)]
        fact = f"\n{' ' * start}".join(lines)
        console.print(Text(f"{label} {fact}"), style=style, soft_wrap=True)
    else:
        say(console, f"{label} {fact}", style)


def say_command(console: Console, label: str, command: str) -> None:
    """Print a command behind a label, to be copied as a whole: a line that must break ends in a backslash."""
    line = f"{label} {command}"
    if not console.is_terminal or cell_len(line) <= console.width:
        say(console, line)
        return
    say(console, "\n".join([label.rstrip(), *_broken_command(command, console.width)]))


def tell(text: str) -> None:
    """Print lines on stderr; an indented one with a command stays a command, as in `say_command`."""
    console = make_console(stderr=True)
    for line in text.split("\n"):
        if console.is_terminal and line.startswith("  ") and _COMMAND in line:
            say(console, "\n".join(f"  {part}" for part in _broken_command(line, console.width - 2)))
        else:
            say(console, line)


def wrapped(text: Text, width: int) -> list[Text]:
    """The lines of a text, broken where a word would pass `width` cells."""
    lines = [part for line in text.split("\n", allow_blank=True) for part in line.divide(_breaks(line.plain, width))]
    for line in lines:
        line.rstrip()
    return lines


def _breaks(line: str, width: int) -> list[int]:
    """Places in a line at which words begin that do not fit behind those before them."""
    breaks = []
    cells = cell_len(line) - cell_len(line.lstrip())
    for word in re.finditer(r"\S+\s*", line):
        if word.start() and cells + cell_len(word[0].rstrip()) > width:
            breaks.append(word.start())
            cells = 0
        cells += cell_len(word[0])
    return breaks


def _broken_command(command: str, width: int) -> list[str]:
    """A command in lines of at most `width` cells where its words allow it, each but the last ending in a backslash."""
    lines: list[str] = []
    for word in map(shlex.quote, shlex.split(command)):
        if lines and cell_len(f"{lines[-1]} {word}{_CONTINUED}") <= width:
            lines[-1] += f" {word}"
        else:
            lines.append(_INDENT + word if lines else word)
    return [line + _CONTINUED for line in lines[:-1]] + lines[-1:]
