"""The best weights of a run by a held-out metric: which they are, and for how long there have been no better ones.

Each evaluation is waited for before the next step is submitted, so that the weights that are saved are those that it
measured. Better ones take the place of the best so far: first they are recorded, then the others are struck from the
record and deleted. Rows of the metrics file and lines of checkpoints.jsonl show a resumed run what was found before.
"""

import math
from collections.abc import Iterable, Mapping
from typing import Any

from cookhouse.errors import InputError, UnknownNameError
from cookhouse.settings.training import BestSettings
from cookhouse.telemetry import after_step, find_metric, is_held_out, keys, ranked
from cookhouse.training.clients.client import ServiceClient, TrainingClient
from cookhouse.training.loop.rolling import drop_checkpoint
from cookhouse.training.loop.saving import CheckpointKind, PendingCheckpoint, submit_checkpoint
from cookhouse.weights.checkpoints import Checkpoint, CheckpointFile, Cursor


class BestWeights:
    """Best value so far of the metric of `keep_best`, and the checkpoint of the best weights."""

    def __init__(
        self,
        settings: BestSettings,
        service: ServiceClient,
        checkpoints: CheckpointFile,
        *,
        rows: Iterable[Mapping[str, Any]] = (),
        is_over: bool = False,
    ) -> None:
        """`rows`: of the metrics file, from before a resume; `is_over`: the resumed run had taken its last step."""
        assert settings.keep_best is not None
        self._wanted = settings.keep_best
        self._patience = settings.early_stopping_patience
        self._threshold = settings.early_stopping_threshold
        self._service = service
        self._checkpoints = checkpoints
        self._is_over = is_over
        self._metric: str | None = None
        self._value = math.nan  # the best so far
        self._step = -1
        self._seen_step = -1
        self._num_worse = 0
        for row in rows:
            self.see(row["step"], row)
        self._recall()

    def _recall(self) -> None:
        """Know of what was saved by an evaluation whose row is not written."""
        for saved in self._checkpoints.best()[-1:]:
            [(self._metric, value)] = saved.best.items()
            if saved.step > self._seen_step:
                self._value, self._step, self._seen_step, self._num_worse = value, saved.step, saved.step, 0

    @property
    def is_over(self) -> bool:
        """True if no further step is to be taken."""
        return self._is_over or (self._patience is not None and self._num_worse >= self._patience)

    @property
    def reason(self) -> str:
        """Why a run that is over has not taken all its steps."""
        assert self._metric is not None
        row = "1 evaluation" if self._patience == 1 else f"{self._patience} evaluations in a row"
        if not math.isfinite(self._value):
            return f"stopped early: {row} had no finite {self._metric}"
        best = f"{find_metric(self._metric).text(self._value)} {after_step(self._step)}"
        much = f" by more than {self._threshold:g}" if self._threshold else ""
        return f"stopped early: {row} had no better {self._metric}{much} than {best}"

    def see(self, step: int, values: Mapping[str, Any]) -> bool:
        """Take what was measured of the weights after `step` steps; whether they are the best so far. Of equals the
        later are: by a metric that never moves they are the last, as without it.

        Raises:
            InputError: it is the first evaluation, and the metric is not among what it measured, or nobody can tell
                which way it is better.
        """
        measured = [name for name in values if is_held_out(name)]
        if not measured or step <= self._seen_step:
            return False
        if self._metric is None:
            self._metric = self._chosen(measured)
        value = values.get(self._metric)
        if isinstance(value, bool) or not isinstance(value, int | float):
            return False  # of an evaluator that was not due, or could not measure it
        self._seen_step = step
        gain = self._gain(value)
        self._num_worse = 0 if gain > self._threshold else self._num_worse + 1
        if gain >= 0:
            self._value, self._step = value, step
        return gain >= 0

    def _gain(self, value: float) -> float:
        """Gain of a value over the best so far; below 0 where it is worse, or not finite."""
        assert self._metric is not None
        if not math.isfinite(value):
            return -math.inf
        if not math.isfinite(self._value):
            return math.inf
        return self._value - value if find_metric(self._metric).direction == "less" else value - self._value

    def _chosen(self, measured: list[str]) -> str:
        allowed = [name for name in ranked(measured) if find_metric(name).direction is not None]
        if not allowed:
            raise InputError("keep_best is set, and nothing that this run measures has a direction that is better")
        if self._wanted == "auto":
            return keys.TEST_NLL if keys.TEST_NLL in allowed else allowed[0]
        if self._wanted in measured and find_metric(self._wanted).direction is None:
            raise InputError(
                f"keep_best={self._wanted}, and nobody can tell whether less or more of it is better; "
                f"allowed: auto, {', '.join(allowed)}"
            )
        if self._wanted not in measured:
            raise UnknownNameError("metric of keep_best", self._wanted, ["auto", *allowed])
        return self._wanted

    def submit(self, client: TrainingClient, cursor: Cursor) -> PendingCheckpoint:
        """Request a save of the weights that are the best so far, to continue from and to sample from."""
        return submit_checkpoint(client, cursor, kind=CheckpointKind.BOTH, best=self._found)

    async def drop_others(self) -> None:
        """Let those go that were the best before the newest that is recorded as such."""
        for checkpoint in self._checkpoints.best()[:-1]:
            await drop_checkpoint(checkpoint, self._service, self._checkpoints)

    async def settle(self, final: Checkpoint, values: Mapping[str, Any]) -> Checkpoint:
        """Compare the last weights, too; the checkpoint of the best, which is `final` itself where these are."""
        if self.see(final.step, values) or self._step == final.step:
            self._checkpoints.mark_best(final.name, self._found)
        await self.drop_others()
        return next(iter(self._checkpoints.best()), final)

    @property
    def _found(self) -> dict[str, float]:
        assert self._metric is not None
        return {self._metric: self._value}
