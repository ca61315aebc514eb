"""Held-out comparisons, judged by the weights at one point of a run."""

from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any

from cookhouse.chat import ComparisonRenderer
from cookhouse.data import ComparisonRow
from cookhouse.evals import comparison_metrics, judge_comparisons, note_comparisons
from cookhouse.grading import GenerativePreferenceModel
from cookhouse.telemetry import Entry, Recording, Telemetry, Values
from cookhouse.training import SamplingClient, TrainingClient
from cookhouse.workflows.base.evaluation import record_metrics


@dataclass(frozen=True, kw_only=True)
class ComparisonEvaluation:
    """Which answers a snapshot prefers, in both orders; what later steps do is not seen."""

    rows: Sequence[ComparisonRow]
    renderer: ComparisonRenderer
    telemetry: Telemetry
    keep: Callable[[int, Sequence[Entry]], None]

    async def begin(self, client: TrainingClient, step: int) -> Coroutine[Any, Any, Values]:
        return self._finish(step, client.save_weights_and_get_sampling_client())

    async def _finish(self, step: int, snapshot: Awaitable[SamplingClient]) -> Values:
        judged = await judge_comparisons(GenerativePreferenceModel(self.renderer, await snapshot), self.rows)
        recording = Recording()
        with recording.active():
            note_comparisons(judged)
        self.keep(step, recording.drain())
        return record_metrics(self.telemetry, step, comparison_metrics(judged))
