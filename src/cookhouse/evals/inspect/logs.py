"""Reading a finished log of Inspect AI: its figures, and each sample as an attempt like those at a benchmark."""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from inspect_ai.log import EvalLog, EvalMetric, EvalSample, EvalScore, read_eval_log, read_eval_log_samples
from inspect_ai.scorer import value_to_float

from cookhouse.errors import ServiceError
from cookhouse.evals.benchmarks.attempts import Attempt, Grade, SampledAnswer
from cookhouse.evals.benchmarks.benchmark import ItemText
from cookhouse.evals.benchmarks.figures import Estimate
from cookhouse.evals.inspect.messages import said_after, to_shown
from cookhouse.evals.inspect.records import InspectResult

_NO_NAME = re.compile(r"[^\w.@-]+")
_STDERR = "stderr"
_MEANS = ("accuracy", "mean")
"""Metrics that the `stderr` next to them is of."""
_TO_FLOAT = value_to_float()
_LEFT_OUT = {"events", "store", "attachments"}
"""Of samples, which may be large."""
_CUT = ("max_tokens", "model_length")


def read_result(log: Path, sample_ids: Sequence[int | str]) -> InspectResult:
    """The result in a finished log; `sample_ids` are all of the task's samples, in their order.

    Raises:
        ServiceError: the task did not finish; with its own error.
    """
    header = read_eval_log(log, header_only=True)
    figures = figures_of(header)
    samples = read_eval_log_samples(
        log, all_samples_required=False, resolve_attachments="core", exclude_fields=_LEFT_OUT
    )
    places = {sample_id: place for place, sample_id in enumerate(sample_ids)}
    found: dict[int, list[EvalSample]] = {}
    for sample in samples:
        found.setdefault(places.get(sample.id, len(places)), []).append(sample)
    return InspectResult(
        name=result_name(header.eval.task),
        log=log,
        figures=figures,
        items={place: _item(some[0]) for place, some in found.items()},
        attempts=[_attempt(place, found[place]) for place in sorted(found)],
    )


def result_name(task: str) -> str:
    """Name under which the figures of a task stand."""
    return f"inspect/{_name(task)}"


def figures_of(log: EvalLog) -> dict[str, Estimate]:
    """The figures of a finished task, by `SCORER/METRIC`; what was not measured is None.

    Raises:
        ServiceError: it did not finish; with the task's own error.
    """
    if log.status != "success" or log.results is None:
        reason = log.error.message if log.error else f"it ended with status {log.status}"
        raise ServiceError(f"the Inspect task {log.eval.task} failed: {reason}")
    scores = log.results.scores
    names = [score.name for score in scores]
    figures: dict[str, Estimate] = {}
    for score in scores:
        # Of several ways to reduce epochs, each gives the same scorer again.
        reducer = f"_{score.reducer}" if names.count(score.name) > 1 and score.reducer else ""
        figures |= {f"{_name(score.name)}{reducer}/{name}": estimate for name, estimate in _estimates(score, log)}
    return figures


def _estimates(score: EvalScore, log: EvalLog) -> Iterable[tuple[str, Estimate]]:
    num_scored = log.results.completed_samples if score.scored_samples is None else score.scored_samples
    stderr = score.metrics.get(_STDERR)
    means = [name for name in _MEANS if name in score.metrics]
    for key, metric in score.metrics.items():
        if key != _STDERR or not means:
            error = _figure(stderr) if stderr is not None and key in means else None
            yield _name(key), Estimate(mean=_figure(metric), stderr=error, n=num_scored)


def _figure(metric: EvalMetric) -> float | None:
    return float(metric.value) if math.isfinite(metric.value) else None


def _name(text: Any) -> str:
    return _NO_NAME.sub("_", str(text).split("/")[-1])


def _item(sample: EvalSample) -> ItemText:
    targets = [sample.target] if isinstance(sample.target, str) else sample.target
    return ItemText(messages=to_shown(sample.input), expected=" | ".join(targets), name=str(sample.id))


def _attempt(place: int, samples: Sequence[EvalSample]) -> Attempt:
    in_order = sorted(samples, key=lambda sample: sample.epoch)
    return Attempt(
        place=place, answers=[_answer(each) for each in in_order], grades=[_grade(each) for each in in_order]
    )


def _answer(sample: EvalSample) -> SampledAnswer:
    if sample.error is not None:
        return SampledAnswer(error=sample.error.message)
    text = said_after(sample.messages) or sample.output.completion
    if _value(sample) is None:
        return SampledAnswer(error=f"it was not scored: {text}")
    is_cut = bool(sample.output.choices) and sample.output.stop_reason in _CUT
    return SampledAnswer(text=text, is_cut=is_cut)


def _grade(sample: EvalSample) -> Grade:
    value = _value(sample)
    return Grade(correct=value or 0.0, is_well_formed=value is not None)


def _value(sample: EvalSample) -> float | None:
    """Value of the first scorer; None if there is no number in it."""
    value: Any = next((score.value for score in (sample.scores or {}).values()), None)
    while isinstance(value, Mapping | list):
        value = next(iter(value.values() if isinstance(value, Mapping) else value), None)
    number = math.nan if value is None else _TO_FLOAT(value)
    return number if math.isfinite(number) else None
