"""A person at a terminal: types commands and answers, and sees what stands on the screen."""

import os
import re
import shutil
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pexpect
import pyte

_ROWS = 2000
"""Rows of the screen: a person scrolls back, so nothing is lost above it. Programs are told `_WINDOW` of them."""
_WINDOW = 40

BOUND_SECONDS = 240
"""What takes longer has failed: many times what an idle machine needs."""

CTRL_C, CTRL_D, ENTER, UP = "\x03", "\x04", "\r", "\x1b[A"


class Terminal:
    """Runs commands of a shell one after the other in a folder, each in a pseudo-terminal of its own.

    A command that ends is waited for by `done`; one that asks is answered by `wait_for` and `type`.
    """

    def __init__(self, folder: Path, variables: Mapping[str, str], columns: int = 90) -> None:
        self.folder, self.columns = folder, columns
        self._variables = dict(variables)
        self._process: Any = None

    def start(self, command: str) -> None:
        """Begin a command, as the shell understands it: with pipes, `>` and quotes."""
        assert self._process is None, "the command before has not been waited for: call done()"
        self._screen = pyte.Screen(self.columns, _ROWS)
        self._stream = pyte.ByteStream(self._screen)
        self._seen = (0, 0)
        self._process = pexpect.spawn(
            "/bin/bash",
            ["--norc", "--noprofile", "-c", command],
            cwd=str(self.folder),
            env=self._variables,
            dimensions=(_WINDOW, self.columns),
        )
        self._process.delaybeforesend = None

    def beside(self) -> "Terminal":
        """A second terminal of the same person, in the same folder."""
        return Terminal(self.folder, self._variables, self.columns)

    def export(self, **variables: str) -> None:
        """Set variables for the commands from here on."""
        self._variables |= variables

    def wait_for(self, pattern: str, seconds: float = BOUND_SECONDS) -> str:
        """Wait until a pattern is seen, after what was typed last; the text that matches."""
        until = time.monotonic() + seconds
        while (found := re.search(pattern, self._new_text())) is None:
            is_open = self._read()
            if not is_open or time.monotonic() > until:
                found = re.search(pattern, self._new_text())
                why = f"was not seen within {seconds:g} s" if is_open else "had not been seen when the command ended"
                assert found is not None, f"{pattern!r} {why}; on the screen:\n{self.screen()}"
                break
        return found[0]

    def type(self, line: str) -> None:
        """Type a line. What is waited for from then on stands below it."""
        self._send(line + ENTER)
        self._seen = (self._screen.cursor.y + 1, 0)

    def press(self, keys: str) -> None:
        """Press keys alone: CTRL_C, CTRL_D, UP."""
        self._send(keys)
        self._seen = (self._screen.cursor.y, self._screen.cursor.x)

    def done(self, seconds: float = BOUND_SECONDS, status: int = 0) -> str:
        """Wait for the end of the command, which has this exit status; what stands on the screen then."""
        until = time.monotonic() + seconds
        while self._read():
            assert time.monotonic() < until, f"still running after {seconds:g} s; on the screen:\n{self.screen()}"
        process, self._process = self._process, None
        process.wait()  # its output ends a moment before it does, and `close` kills what is still there
        process.close()
        ended = process.exitstatus if process.signalstatus is None else -process.signalstatus
        assert ended == status, f"ended with {ended}, not {status}; on the screen:\n{self.screen()}"
        return self.screen()

    def screen(self) -> str:
        """What stands on the screen: lines that were overwritten once, in their last form, and no colors."""
        return self._text_from(0, 0)

    def close(self) -> None:
        """End a command that a failed test has left."""
        if self._process is not None:
            self._process.close(force=True)

    def _read(self) -> bool:
        """Show what the program writes within a moment; False when it has ended and all is shown."""
        try:
            self._stream.feed(self._process.read_nonblocking(65536, timeout=0.1))
        except pexpect.TIMEOUT:
            return True
        except pexpect.EOF:
            return False
        return True

    def _send(self, keys: str) -> None:
        """Show all that is written so far, then press the keys."""
        try:
            while True:
                self._stream.feed(self._process.read_nonblocking(65536, timeout=0))
        except (pexpect.TIMEOUT, pexpect.EOF):
            self._process.send(keys)

    def _new_text(self) -> str:
        return self._text_from(*self._seen)

    def _text_from(self, row: int, column: int) -> str:
        buffer = self._screen.buffer
        last = max(buffer, default=-1)
        lines = ["".join(buffer[y][x].data for x in range(self.columns)).rstrip() for y in range(row, last + 1)]
        return "\n".join(lines)[column:].rstrip("\n")


def variables_of_a_person(home: Path) -> dict[str, str]:
    """The environment of somebody whose home has nothing but kernels, if these were compiled before."""
    kept = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "cookhouse"
    (home / ".cache" / "cookhouse").mkdir(parents=True, mode=0o700)
    for kernels in kept.glob("*.so"):
        shutil.copy2(kernels, home / ".cache" / "cookhouse")
    keep = {name: value for name, value in os.environ.items() if name in ("CXX", "COOKHOUSE_MAX_CPU_ISA", "NLTK_DATA")}
    return {
        **keep,
        "HOME": str(home),
        "PATH": f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin",
        "TERM": "xterm-256color",
        "LANG": "C.UTF-8",
        "CUDA_VISIBLE_DEVICES": os.environ.get("CUDA_VISIBLE_DEVICES", ""),
        "OMP_WAIT_POLICY": "PASSIVE",
    }
