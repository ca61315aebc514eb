"""examples/000012.jsonl: some of what step 12 was trained on, a datum a line, for people to read: tokens, targets, and
what was said of each target. A thread of its own writes it: training waits for none of it.

What a run keeps is bounded: when it is too much, the examples of every second step go, then those of every second of
the others, and so on.

Legend: T positions of a datum, K targets at each where there are several.
"""

import asyncio
import logging
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass
from itertools import count as count_from
from pathlib import Path
from typing import Any

import numpy as np
import tinker
from numpy.typing import NDArray

from cookhouse.algorithms.base.json_lines import json_line, shortened
from cookhouse.envs import evenly_spaced
from cookhouse.errors import InputError
from cookhouse.files import file_errors, write_whole
from cookhouse.telemetry import step_number
from cookhouse.training import Answered, Keep
from cookhouse.training.loop.objective import Fields, FindLogprobs, answered_datums

logger = logging.getLogger(__name__)

MAX_RUN_BYTES = 64 * 2**20
MAX_STEP_BYTES = 4 * 2**20
"""Of a step with more, the examples that go beyond it are left out."""
MAX_TARGETS = 2048
"""Of an example that is longer a part is shown, from a little before what is trained on."""
_MAX_NUMBERS = 8 * MAX_TARGETS
_BEFORE = 256
_VALUES = {
    "weights": ("weights", "mask"),
    "advantages": ("advantages",),
    "sampler_logprobs": ("logprobs",),
    "teacher_logprobs": ("teacher_logprobs",),
}
"""What is shown, and which parts of a datum it may be, the first that is there."""
_MAX_WAITING = 16
"""Steps. Where the disk is further behind, steps go without."""


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


class Keeper:
    """Has each step kept by every one of `keeps`, in the order of the steps; fits `cookhouse.training.Keep`. What goes
    wrong there is said once, and ends the keeping, not the run.
    """

    def __init__(self, keeps: Sequence[Keep]) -> None:
        self._keeps = keeps
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="keep examples")
        self._waiting: list[Future[None]] = []
        self._num_left_out = 0
        self._is_broken = False

    def __call__(self, step: int, parts: Answered[Any]) -> None:
        self._waiting = [each for each in self._waiting if not each.done()]
        if len(self._waiting) == _MAX_WAITING:
            self._num_left_out += 1
            return
        self._waiting.append(self._thread.submit(copy_context().run, self._keep, step, list(parts)))

    async def aclose(self) -> None:
        """Wait until everything is written."""
        await asyncio.to_thread(self._thread.shutdown)
        if self._num_left_out:
            logger.warning("%d steps have no examples: they could not be written as fast", self._num_left_out)

    def _keep(self, step: int, parts: Answered[Any]) -> None:
        if self._is_broken:
            return
        try:
            for keep in self._keeps:
                keep(step, parts)
        except Exception as error:
            self._is_broken = True
            logger.warning(
                "no further examples are kept of this run: %s", error, exc_info=not isinstance(error, InputError)
            )


@dataclass(frozen=True, kw_only=True)
class AnsweredDatum:
    """A datum of a step, and what the service answered to it."""

    number: int
    """In the step, from 0."""
    label: str
    datum: tinker.Datum
    fields: Fields


def shown_datums(parts: Answered[Any], count: int) -> list[AnsweredDatum]:
    """The datums of at most `count` examples, spread evenly over a step. Of work that was trained on several times the
    first answer counts.
    """
    answered: dict[int, tuple[tinker.Datum, Fields]] = {}
    for datum, fields in answered_datums(parts):
        answered.setdefault(id(datum), (datum, fields))
    labels = next((work.labels for work, _ in parts if work.labels), ("",))
    found = list(answered.values())
    starts = evenly_spaced(range(0, len(found), len(labels)), count)
    return [
        AnsweredDatum(number=number, label=label, datum=datum, fields=fields)
        for start in starts
        for number, label, (datum, fields) in zip(count_from(start), labels, found[start:], strict=False)
    ]


def example_row(shown: AnsweredDatum, find_logprobs: FindLogprobs) -> dict[str, Any]:
    """Row of a datum. Values stand in the shape of its targets; those that it does not have are left out."""
    inputs = shown.datum.loss_fn_inputs
    targets = inputs["target_tokens"].to_numpy()
    found = {
        name: next((inputs[part].to_numpy() for part in parts if part in inputs), None)
        for name, parts in _VALUES.items()
    } | {"logprobs": find_logprobs(shown.datum, shown.fields)}
    values = {
        name: array.reshape(targets.shape)
        for name, array in found.items()
        if array is not None and array.size == targets.size
    }
    part = _part_shown(targets, values.get("weights"))
    return {
        "number": shown.number,
        "label": shown.label,
        "num_before": part.start,
        "num_after": len(targets) - part.stop,
        "tokens": _tokens(shown.datum.model_input)[part],
        "targets": targets[part].tolist(),
        **{name: shortened(array[part]).tolist() for name, array in values.items()},
    }


def _part_shown(targets: NDArray[Any], weights: NDArray[Any] | None) -> slice:
    num_targets, width = len(targets), int(np.prod(targets.shape[1:]))
    count = min(num_targets, MAX_TARGETS, max(1, _MAX_NUMBERS // max(width, 1)))
    trained = np.zeros(0) if weights is None else np.flatnonzero(weights.reshape(num_targets, -1).any(axis=1))
    first = int(trained[0]) if trained.size else 0
    start = min(max(0, first - min(_BEFORE, count // 2)), num_targets - count)
    return slice(start, start + count)


def _tokens(model_input: tinker.ModelInput) -> list[int | None]:
    """The inputs; None where an image stands."""
    return [token for chunk in model_input.chunks for token in _of_chunk(chunk)]


def _of_chunk(chunk: Any) -> Sequence[int | None] | Iterator[None]:
    return list(chunk.tokens) if isinstance(chunk, tinker.EncodedTextChunk) else [None] * chunk.length
