"""Overfitting: what is held out gets worse while training goes on getting better."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from cookhouse.report.columns import curves_of
from cookhouse.report.curves import Curve, Point
from cookhouse.report.standing import stderr_at
from cookhouse.telemetry import Metric, after_step, is_held_out, keys, ranked
from cookhouse.weights.checkpoints import Checkpoint

_FEWEST_EVALUATIONS = 3
_LEAST_CHANGE = 0.02
"""Relative to the best value: less is noise, where no standard error was measured."""
_TRAINED = (keys.TRAIN_LOSS, keys.PAIR_LOSS, keys.TRAIN_REWARD)


def overfitting_remark(
    rows: Sequence[Mapping[str, Any]], checkpoints: Sequence[Checkpoint], own: Mapping[str, Metric]
) -> str | None:
    """A sentence on the held-out metric that has been getting worse since its best evaluation while training has not,
    and on the checkpoint of that one; None where nothing shows it. `own` are the metrics that the run declared.
    """
    curves = {curve.name: curve for curve in curves_of(rows, own)}
    trained = next((curves[name] for name in _TRAINED if name in curves), None)
    if trained is None:
        return None
    for held_out in _held_out(curves, own):
        best, last = held_out.best, held_out.points[-1]
        if best is None or not _is_worse(held_out.metric, best, last, rows):
            continue
        before, after = _mean_before(trained, best.step, held_out), _mean_before(trained, last.step, held_out)
        if before is None or after is None or trained.metric.best((before, after)) != after or before == after:
            continue
        texts = [held_out.metric.text(best.value), held_out.metric.text(last.value)]
        return (
            f"Overfitting {after_step(best.step)}: {held_out.metric.label} goes from {texts[0]} to {texts[1]} at step "
            f"{last.step:,}, while {trained.metric.label} goes from {trained.metric.text(before)} to "
            f"{trained.metric.text(after)}. {_advice(best.step, checkpoints)}"
        )
    return None


def is_read(name: str) -> bool:
    """True if `overfitting_remark` reads a metric."""
    return is_held_out(name) or name in _TRAINED


def _held_out(curves: Mapping[str, Curve], own: Mapping[str, Metric]) -> Iterator[Curve]:
    """Of the metrics that describe a run those that are held out, the loss before its shares: it shows overfitting
    first.
    """
    names = dict.fromkeys((keys.TEST_NLL, *ranked(curves, own)))
    found = (curves[name] for name in names if name in curves and is_held_out(name))
    return (curve for curve in found if len(curve.points) >= _FEWEST_EVALUATIONS and curve.metric.headline is not None)


def _is_worse(metric: Metric, best: Point, last: Point, rows: Sequence[Mapping[str, Any]]) -> bool:
    """True if a later value is worse than the best by more than noise."""
    errors = [stderr_at(rows, metric.name, point.step) for point in (best, last)]
    known = [error for error in errors if error is not None]
    noise = math.hypot(*known) if len(known) == len(errors) else _LEAST_CHANGE * abs(best.value)
    return last.step > best.step and abs(last.value - best.value) > noise


def _mean_before(trained: Curve, step: int, held_out: Curve) -> float | None:
    """Of the training steps between an evaluation and the one before it; of the first evaluation, the first step."""
    start = max((point.step for point in held_out.points if point.step < step), default=0)
    values = [point.value for point in trained.points if start < point.step <= step]
    values = values or [point.value for point in trained.points[:1]]
    return sum(values) / len(values) if values else None


def _advice(step: int, checkpoints: Sequence[Checkpoint]) -> str:
    saved = next(
        (point for point in checkpoints if point.step == step and (point.sampler_path or point.state_path)), None
    )
    if saved is None:
        return f"No checkpoint is of step {step:,}: keep_best=auto would have kept the best."
    return f"The best weights are in the checkpoint {saved.name}: {saved.sampler_path or saved.state_path}"
