"""Completes a finished step's metrics with progress and time, and reports them."""

from collections.abc import Callable, Mapping

from cookhouse.telemetry import Telemetry, events, keys, split_values, step_number
from cookhouse.training.loop.slots import FinishedStep


class StepLog:
    """Reports each step as one metrics row, keyed by the steps taken before it, and as the event `training.step`; also
    under the algorithm's own event name, if it has one. The last step of an epoch is followed by `training.epoch`.
    """

    def __init__(
        self,
        telemetry: Telemetry,
        total_steps: int,
        *,
        steps_per_epoch: int,
        event: str | None = None,
        of_event: Callable[[FinishedStep], Mapping[str, float]] = lambda _: {},
    ) -> None:
        """`of_event`: metrics that the events of a step have, and its row has not."""
        self._telemetry = telemetry
        self._total_steps = total_steps
        self._steps_per_epoch = steps_per_epoch
        self._of_event = of_event
        self._events = [events.TRAINING_STEP] if event is None else [events.TRAINING_STEP, event]

    def __call__(self, finished: FinishedStep) -> None:
        cursor = finished.cursor
        step = step_number(cursor.step)
        metrics = {
            **finished.metrics,
            keys.PROGRESS_EPOCH: cursor.epoch,
            keys.PROGRESS_BATCH: cursor.batch,
            keys.PROGRESS_DONE: step / self._total_steps,
            keys.STEP_SECONDS: finished.seconds,
            keys.TOKENS_PER_SECOND: finished.metrics[keys.TRAIN_TOKENS] / finished.seconds,
        }
        self._telemetry.metrics(cursor.step, metrics)
        numbers, text = split_values(metrics)
        numbers |= {"total_steps": self._total_steps, **self._of_event(finished)}
        for event in self._events:
            self._telemetry.event(event, step=step, metrics=numbers, **text)
        if cursor.batch + 1 == self._steps_per_epoch:
            finished_epochs = {"epoch": cursor.epoch + 1, "steps": self._steps_per_epoch}
            self._telemetry.event(events.TRAINING_EPOCH, step=step, metrics=finished_epochs)
