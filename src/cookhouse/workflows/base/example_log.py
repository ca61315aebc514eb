"""examples/000012.jsonl: some of what step 12 was trained on, a datum a line; see `example_rows`.

What a run keeps is bounded: when it is too much, the examples of every second step go, then those of every second of
the others, and so on.
"""

import logging
from pathlib import Path
from typing import Any

from cookhouse.files import file_errors, write_whole
from cookhouse.telemetry import step_number
from cookhouse.training import Answered
from cookhouse.training.loop.objective import FindLogprobs
from cookhouse.workflows.base.example_rows import example_row, shown_datums
from cookhouse.workflows.base.json_lines import json_line

logger = logging.getLogger(__name__)

MAX_RUN_BYTES = 64 * 2**20
MAX_STEP_BYTES = 4 * 2**20
"""Of a step with more, the examples that go beyond it are left out."""


class ExampleLog:
    """Keeps examples of the steps of one run; fits `cookhouse.training.Keep`."""

    def __init__(
        self,
        folder: Path,
        *,
        num_shown: int,
        first_step: int,
        logprobs: FindLogprobs,
        max_run_bytes: int = MAX_RUN_BYTES,
        max_step_bytes: int = MAX_STEP_BYTES,
    ) -> None:
        """Remove entries of `first_step` and later: the run that wrote it broke off, and this one goes on
        from there. `logprobs`: as `Objective.logprobs`.
        """
        self._folder = folder
        self._num_shown = num_shown
        self._logprobs = logprobs
        self._max_run_bytes, self._max_step_bytes = max_run_bytes, max_step_bytes
        self._every = 1
        """Steps from one that is kept to the next."""
        files = [path for path in folder.glob("[0-9]*.jsonl") if path.stem.isdecimal() and path.is_file()]
        self._sizes = {int(path.stem): path.stat().st_size for path in files}
        for step in [step for step in self._sizes if step >= first_step]:
            self._remove(step)

    def __call__(self, step: int, parts: Answered[Any]) -> None:
        """Raises `InputError` where nothing can be written."""
        if not self._num_shown or step % self._every:
            return
        text = self._text(parts)
        if not text:
            return
        with file_errors(self._folder):
            self._folder.mkdir(exist_ok=True)
        write_whole(self._path(step), text, is_synced=False)
        self._sizes[step] = len(text)
        self._thin(step)

    def _text(self, parts: Answered[Any]) -> str:
        lines: list[str] = []
        num_bytes = 0
        for shown in shown_datums(parts, self._num_shown):
            line = json_line(example_row(shown, self._logprobs))
            num_bytes += len(line)
            if num_bytes > self._max_step_bytes:
                break
            lines.append(line)
        return "".join(lines)

    def _thin(self, step: int) -> None:
        if sum(self._sizes.values()) <= self._max_run_bytes:
            return
        while sum(self._sizes.values()) > self._max_run_bytes and len(self._sizes) > 1:
            self._every *= 2
            for other in [other for other in self._sizes if other % self._every]:
                self._remove(other)
        logger.info(
            "the examples of this run are more than %.0f MiB at step %s; from here on those of every %d steps are kept",
            self._max_run_bytes / 2**20,
            f"{step_number(step):,}",
            self._every,
        )

    def _remove(self, step: int) -> None:
        self._path(step).unlink(missing_ok=True)
        del self._sizes[step]

    def _path(self, step: int) -> Path:
        return self._folder / f"{step:06d}.jsonl"
