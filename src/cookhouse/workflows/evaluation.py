"""Held-out conversations: their loss, and how many are answered exactly, at one point of a run."""

from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any

from cookhouse.chat import text_of
from cookhouse.evals import Answer, ExactMatchEvaluator, NLLEvaluator
from cookhouse.telemetry import Telemetry
from cookhouse.training import SamplingClient, TrainingClient
from cookhouse.workflows.folder import RecordedAnswer


class HeldOutEvaluation:
    """Measures by `forward`, which leaves no gradient, and by sampling from a snapshot, which later steps do not reach.

    Metrics are the evaluators' under `test/`; what could not be measured is left out.
    """

    def __init__(
        self,
        *,
        nll: NLLEvaluator,
        exact_match: ExactMatchEvaluator,
        telemetry: Telemetry,
        keep: Callable[[int, Sequence[RecordedAnswer]], None],
    ) -> None:
        self._nll = nll
        self._exact_match = exact_match
        self._telemetry = telemetry
        self._keep = keep

    async def begin(self, client: TrainingClient, step: int) -> Coroutine[Any, Any, Mapping[str, float]]:
        snapshot = client.save_weights_and_get_sampling_client()
        return self._finish(step, await self._nll(client), snapshot)

    async def _finish(
        self, step: int, loss: Mapping[str, float | None], snapshot: Awaitable[SamplingClient]
    ) -> Mapping[str, float]:
        found = {**loss, **await self._exact_match(await snapshot)}
        metrics = {f"test/{name}": value for name, value in found.items() if value is not None}
        self._keep(step, [_recorded(answer) for answer in self._exact_match.answers])
        self._telemetry.event("eval.complete", step=step, metrics=metrics)
        return metrics


def _recorded(answer: Answer) -> RecordedAnswer:
    return RecordedAnswer(
        prompt=text_of(answer.prompt[-1]),
        expected=answer.expected,
        answer=answer.answer,
        is_correct=answer.is_correct,
        group=answer.group,
    )
