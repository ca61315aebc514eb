"""Completes a finished step's metrics with progress and time, and reports them."""

from cookhouse.telemetry import Telemetry, keys
from cookhouse.training.loop import FinishedStep


class StepLog:
    """Reports each step as one metrics row, keyed by the steps taken before it, and as the event `training.step`."""

    def __init__(self, telemetry: Telemetry, total_steps: int) -> None:
        self._telemetry = telemetry
        self._total_steps = total_steps

    def __call__(self, finished: FinishedStep) -> None:
        cursor = finished.cursor
        metrics = {
            **finished.metrics,
            keys.PROGRESS_EPOCH: cursor.epoch,
            keys.PROGRESS_BATCH: cursor.batch,
            keys.PROGRESS_DONE: (cursor.step + 1) / self._total_steps,
            keys.STEP_SECONDS: finished.seconds,
            keys.TOKENS_PER_SECOND: finished.metrics[keys.TRAIN_TOKENS] / finished.seconds,
        }
        self._telemetry.metrics(cursor.step, metrics)
        self._telemetry.event(
            "training.step", step=cursor.step + 1, metrics={**metrics, "total_steps": self._total_steps}
        )
