"""The page of a run that is on, served by a process of its own: never by the run's, which it would slow down.

run                                    page, in a session of its own: Ctrl-C in the terminal does not reach it
stdin pipe, held open    ──────────►   EOF ends it: also a run that is killed leaves no process
stdout pipe              ◄──────────   its address, once it answers
stderr pipe              ◄──────────   why it cannot be served
"""

import contextlib
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Final, Self

COMMAND: Final = (sys.executable, "-m", "cookhouse.view")
_PATIENCE_SECONDS: Final = 5.0


class PageBeside:
    """Used as a context: the page is served from its start to its end."""

    def __init__(self, folder: Path, tell: Callable[[str, str], None]) -> None:
        """`tell` is given the address to click, token included; or none, and why it cannot be served. In a thread."""
        self._folder = folder
        self._tell = tell
        self._problem = ""

    @property
    def process_id(self) -> int:
        return self._process.pid

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [*COMMAND, str(self._folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        self._drainer = threading.Thread(target=self._drain, daemon=True)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._drainer.start()  # first: the reader waits for its end
        self._reader.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        try:
            self._process.wait(_PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join()
        self._drainer.join()
        for pipe in (self._process.stdout, self._process.stderr):
            assert pipe is not None
            pipe.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        address = self._process.stdout.readline().strip()
        if not address:
            self._drainer.join()
        self._tell(address, "" if address else self._problem)

    def _drain(self) -> None:
        """Keep the end of what it complains of, and the pipe from filling up."""
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self._problem = line.strip() or self._problem
