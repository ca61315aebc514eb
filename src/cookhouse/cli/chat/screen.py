"""Terminal of a chat: typed with line editing, shown without breaking words; otherwise plain lines."""

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

import typer
from rich.cells import cell_len

from cookhouse.errors import printable
from cookhouse.telemetry import make_console, tell

_PROMPT = "> "
_BLOCK = '"""'


class Screen:
    """The terminal of a conversation, or the pipes in its place."""

    def __init__(self) -> None:
        self.has_user = sys.stdin.isatty()
        if self.has_user:
            import readline  # noqa: F401  lines are edited and recalled by `input` once it is there

    def read(self) -> str | None:
        """The next message: a line, or what stands between lines of three quotation marks; None at the end.

        Raises:
            KeyboardInterrupt: Ctrl-C was pressed.
        """
        line = self._line(_PROMPT)
        if line is None or not line.lstrip().startswith(_BLOCK):
            return line
        block = [line.lstrip().removeprefix(_BLOCK)]
        while not block[-1].rstrip().endswith(_BLOCK):
            more = self._line("... ")
            if more is None:
                return "\n".join(block).strip()
            block.append(more)
        return "\n".join(block).rstrip().removesuffix(_BLOCK).strip()

    def _line(self, prompt: str) -> str | None:
        if not self.has_user:
            line = sys.stdin.readline()
            return line.rstrip("\n") if line else None
        with _plain_interrupts():
            try:
                return input(prompt) if sys.stdout.isatty() else _input_on_stderr(prompt)
            except EOFError:
                typer.echo(err=True)
                return None

    def say(self, text: str) -> None:
        """Tell the user something that no model has said."""
        tell(printable(text, keep="\n"))

    def answer(self) -> "Writer":
        """A writer of an answer, piece by piece."""
        console = make_console()
        return Writer(sys.stdout, console.width if console.is_terminal else None)


class Writer:
    """Writes a text in pieces, whole lines of words within `width` cells; None: as it is, to a file or a pipe."""

    def __init__(self, out: TextIO, width: int | None) -> None:
        self._out = out
        self._width = width
        self._cells = 0
        self._word = ""
        self._style = ""

    def write(self, text: str, *, is_thinking: bool = False) -> None:
        """The next piece; what a model thinks before it answers is dim, and not written where there is no terminal."""
        if self._width is None:
            self._out.write("" if is_thinking else text)
            self._out.flush()
            return
        self._restyle("\x1b[2m" if is_thinking else "")
        for character in printable(text, keep="\n\t"):
            if character == "\n":
                self._flush()
                self._out.write("\n")
                self._cells = 0
            elif character == " ":
                self._flush()
                self._word = " "
            else:
                self._word += character
        self._out.flush()

    def close(self) -> None:
        """The end of the answer, and of its line."""
        self._flush()
        self._restyle("")
        self._out.write("\n")
        self._out.flush()

    def _restyle(self, style: str) -> None:
        if style == self._style:
            return
        self._flush()
        if self._style and self._cells:
            self._out.write("\n")
            self._cells = 0
        self._out.write("\x1b[0m" + style)
        self._style = style

    def _flush(self) -> None:
        """The word that was held until its end, on a line of its own if it does not fit."""
        if self._width is not None and self._cells and self._cells + cell_len(self._word) > self._width:
            self._out.write("\n")
            self._cells = 0
            self._word = self._word.lstrip(" ")
        self._out.write(self._word)
        self._cells += cell_len(self._word)
        self._word = ""


def _input_on_stderr(prompt: str) -> str:
    typer.echo(prompt, nl=False, err=True)
    line = sys.stdin.readline()
    if not line:
        raise EOFError
    return line.rstrip("\n")


@contextmanager
def _plain_interrupts() -> Iterator[None]:
    """Ctrl-C ends the body: who waits for a line blocks the event loop, whose own handler would act only after it."""
    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)
