"""Rules over the course of a run: whether what it learns by gets better, and whether that can be judged yet."""

import math
from collections.abc import Sequence

from cookhouse.diagnosis.history import MetricHistory
from cookhouse.diagnosis.rule import Found, Rule, RunFacts, mean
from cookhouse.telemetry import find_metric, keys

_ENDS = 10
"""Values at most that the beginning and the end of a metric are means of."""
_FEWEST = 4
_LOSSES = (keys.TEACHER_KL, keys.TRAIN_LOSS, keys.PAIR_LOSS)
"""What a run without rewards learns by, the first that it has."""
_LEARNED_LOSS = 0.05
"""Nats, or mean loss of a pair: where a loss begins below, little is left to learn."""


def flat_reward(rule: Rule, history: MetricHistory, facts: RunFacts) -> Found | None:
    """The reward is no better than at the beginning, although groups differ."""
    if not facts.learns_by_reward or mean(history.last(keys.GROUPS_ALL_GOOD, rule.steps) or [0.0]) > 0.5:
        return None
    if not any(history.last(keys.GROUPS_MIXED, rule.steps)):
        return None
    return _flat(
        rule,
        history,
        keys.TRAIN_REWARD,
        f"a higher learning_rate{facts.now('learning_rate')}, more groups per step{facts.now('batch_size')}, or easier "
        "problems first",
    )


def flat_loss(rule: Rule, history: MetricHistory, facts: RunFacts) -> Found | None:
    """The training loss is no better than at the beginning."""
    name = _target(history, facts)
    if name not in _LOSSES or mean(history.first(name, _ENDS)) < _LEARNED_LOSS:
        return None
    return _flat(
        rule,
        history,
        name,
        f"a higher learning_rate{facts.now('learning_rate')}; if that changes nothing, look at an example of the run: "
        "is what should be learned among the tokens that are trained on?",
    )


def learning_rate_gone(rule: Rule, history: MetricHistory, facts: RunFacts) -> Found | None:
    """The learning rate had fallen to almost nothing before anything was learned."""
    rates, name = history.points(keys.LEARNING_RATE), _target(history, facts)
    peak = max(rates, key=lambda point: point.value, default=None)
    if name is None or peak is None or not 0 < peak.value * rule.threshold >= rates[-1].value:
        return None
    low = next(point for point in rates if point.step > peak.step and point.value <= rule.threshold * peak.value)
    values = [point.value for point in history.points(name) if point.step <= low.step]
    if len(values) < _FEWEST or _improves(name, values):
        return None
    metric = find_metric(name, facts.declared)
    before, after = _ends(values)
    return (
        f"the learning rate had fallen to {low.value / peak.value:.1%} of its peak by step {low.step:,}, before "
        f"{metric.label} got better: {metric.text(_short(before))} → {metric.text(_short(after))}",
        {keys.LEARNING_RATE: rates[-1].value, name: after},
        f"more steps (now {facts.total_steps or history.num_steps:,}), a higher learning_rate"
        f"{facts.now('learning_rate')}, or lr_schedule=constant{facts.now('lr_schedule')}",
    )


def too_early(rule: Rule, history: MetricHistory, facts: RunFacts) -> Found | None:
    """Few of a run's steps are done, and nothing is better yet."""
    total, steps, name = facts.total_steps, history.num_steps, _target(history, facts)
    if total is None or name is None or steps >= rule.threshold * total:
        return None
    values = [point.value for point in history.points(name)]
    if len(values) >= _FEWEST and _improves(name, values):
        return None
    label = find_metric(name, facts.declared).label
    return (
        f"{steps:,} of {total:,} steps: too early to judge {label}",
        {keys.PROGRESS_DONE: steps / total},
        f"wait until step {math.ceil(rule.threshold * total):,}",
    )


def _target(history: MetricHistory, facts: RunFacts) -> str | None:
    """What the run learns by."""
    if facts.learns_by_reward:
        return keys.TRAIN_REWARD if history.points(keys.TRAIN_REWARD) else None
    return next((name for name in _LOSSES if history.points(name)), None)


def _flat(rule: Rule, history: MetricHistory, name: str, advice: str) -> Found | None:
    values = [point.value for point in history.points(name)]
    if len(values) < rule.steps:
        return None
    before, after = _ends(values)
    if _improves(name, values) and abs(after - before) > rule.threshold * abs(before):
        return None
    metric = find_metric(name)
    return (
        f"{metric.label} is no better after {len(values):,} steps than at the beginning: {metric.text(_short(before))} "
        f"→ {metric.text(_short(after))}",
        {name: after},
        advice,
    )


def _improves(name: str, values: Sequence[float]) -> bool:
    """True if the last values are better than the first by more than the standard error of that difference."""
    size = _size(values)
    first, last = values[:size], values[-size:]
    gain = mean(last) - mean(first)
    error = math.sqrt(_variance(first) / size + _variance(last) / size)
    return (gain if find_metric(name).direction == "more" else -gain) > error


def _ends(values: Sequence[float]) -> tuple[float, float]:
    size = _size(values)
    return mean(values[:size]), mean(values[-size:])


def _variance(values: Sequence[float]) -> float:
    center = mean(values)
    return sum((value - center) * (value - center) for value in values) / max(1, len(values) - 1)


def _size(values: Sequence[float]) -> int:
    return max(1, min(_ENDS, len(values) // 3))


def _short(value: float) -> float:
    return float(f"{value:.3g}")
