"""Rules over what is held out: it gets worse while what is trained on gets better."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from cookhouse.diagnosis.history import MetricHistory, Point
from cookhouse.diagnosis.rule import Found, Rule, RunFacts, mean
from cookhouse.telemetry import Metric, after_step, find_metric, is_held_out, keys, number, ranked
from cookhouse.weights.checkpoints import Checkpoint

_FEWEST_EVALUATIONS = 3
_NUM_ERRORS = 2.0
"""Standard errors of a difference that chance is allowed: the best of many evaluations is partly luck."""
TRAINED = (keys.TRAIN_LOSS, keys.PAIR_LOSS, keys.TRAIN_REWARD)
"""Loss that a run trains on: the first that it has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores:
    """Scores of a preference model and of a rule for the held-out answers of one evaluation, in [0, 1]."""

    step: int
    model: float
    """Mean win share against the answers of the data."""
    rule: float
    model_stderr: float
    rule_stderr: float
    """Standard errors; 0 where they are not known."""
    agreement: float | None
    """Share of the answers that both find good, or neither."""


def overfitting(rule: Rule, history: MetricHistory, facts: RunFacts) -> Found | None:
    """A held-out metric has been getting worse since its best evaluation while training has not."""
    trained = next((name for name in TRAINED if history.points(name)), None)
    if trained is None:
        return None
    training = find_metric(trained, facts.declared)
    for metric in _held_out(history, facts):
        points = history.points(metric.name)
        value = metric.best(point.value for point in points)
        best, last = next(point for point in points if point.value == value), points[-1]
        if not _is_worse(rule, metric, best, last, history):
            continue
        before, after = (_mean_before(history, trained, point.step, points) for point in (best, last))
        if training.best((before, after)) != after or before == after:
            continue
        return (
            f"overfitting {after_step(best.step)}: {metric.label} goes from {metric.text(best.value)} to "
            f"{metric.text(last.value)} at step {last.step:,}, while {training.label} goes from "
            f"{training.text(before)} to {training.text(after)}",
            {metric.name: last.value, trained: after},
            _advice(best.step, facts.checkpoints()),
        )
    return None


def overoptimization(rule: Rule, history: MetricHistory, facts: RunFacts) -> Found | None:
    """A preference model's score goes on rising while a rule that nobody trains on falls."""
    scores = scores_of(history)
    parted = overoptimization_of(scores, rule.threshold)
    if parted is None:
        return None
    return (
        overoptimization_line(scores).removesuffix("."),
        {keys.TEST_WIN_SHARE: parted[1].model, keys.TEST_RULE: parted[1].rule},
        _advice(parted[0].step, facts.checkpoints()),
    )


def scores_of(history: MetricHistory) -> list[Scores]:
    """Of the evaluations that have both, in order of their steps."""
    model, rule, *rest = (
        dict(history.points(name))
        for name in (
            *(keys.TEST_WIN_SHARE, keys.TEST_RULE),
            *(f"{keys.TEST_WIN_SHARE}_stderr", f"{keys.TEST_RULE}_stderr", keys.TEST_AGREEMENT),
        )
    )
    model_stderr, rule_stderr, agreement = rest
    return [
        Scores(
            step=step,
            model=model[step],
            rule=rule[step],
            model_stderr=model_stderr.get(step, 0.0),
            rule_stderr=rule_stderr.get(step, 0.0),
            agreement=agreement.get(step),
        )
        for step in sorted(model.keys() & rule.keys())
    ]


def overoptimization_of(scores: Sequence[Scores], num_errors: float = 2.0) -> tuple[Scores, Scores] | None:
    """The evaluation at which the rule's share is highest, and the first after it at which the rule's has fallen while
    the model's has not, each by more than so many standard errors of the difference; None: they do not part.
    """
    if not scores:
        return None
    peak = max(scores, key=lambda each: each.rule)
    for later in scores:
        has_rule_fallen = peak.rule - later.rule > num_errors * math.hypot(peak.rule_stderr, later.rule_stderr)
        has_model_fallen = peak.model - later.model > num_errors * math.hypot(peak.model_stderr, later.model_stderr)
        if later.step > peak.step and has_rule_fallen and not has_model_fallen:
            return peak, later
    return None


def overoptimization_line(scores: Sequence[Scores]) -> str:
    """A sentence on whether both part, and where, and how far they agree in the end. Of one evaluation or more."""
    first, last = scores[0], scores[-1]
    parted = overoptimization_of(scores)
    if parted is None:
        said = (
            f"From step {first.step} to {last.step} the preference model's win share goes from {number(first.model)} "
            f"to {number(last.model)} and the rule's from {number(first.rule)} to {number(last.rule)}: they do not "
            "part."
        )
    else:
        peak, later = parted
        said = (
            f"They part after step {peak.step}, where the rule's share is highest: by step {later.step} it falls from "
            f"{number(peak.rule)} to {number(later.rule)}, and the preference model's win share goes from "
            f"{number(peak.model)} to {number(later.model)}. What comes after step {peak.step} pleases the model alone."
        )
    if last.agreement is None:
        return said
    return f"{said} At step {last.step} they agree on {last.agreement:.0%} of the held-out answers."


def _held_out(history: MetricHistory, facts: RunFacts) -> Iterator[Metric]:
    """Of the metrics that describe a run those that are held out, the loss before its shares: it shows overfitting
    first.
    """
    for name in dict.fromkeys((keys.TEST_NLL, *ranked(history.names, facts.declared))):
        metric = find_metric(name, facts.declared)
        is_placed = metric.headline is not None and metric.direction is not None
        if is_held_out(name) and is_placed and len(history.points(name)) >= _FEWEST_EVALUATIONS:
            yield metric


def _is_worse(rule: Rule, metric: Metric, best: Point, last: Point, history: MetricHistory) -> bool:
    """True if a later value is worse than the best by more than noise: two standard errors of the difference or, where
    they were not measured, a share of the best value.
    """
    errors = dict(history.points(f"{metric.name}_stderr"))
    known = [errors[point.step] for point in (best, last) if point.step in errors]
    noise = _NUM_ERRORS * math.hypot(*known) if len(known) == 2 else rule.threshold * abs(best.value)
    return last.step > best.step and abs(last.value - best.value) > noise


def _mean_before(history: MetricHistory, trained: str, step: int, evaluations: Sequence[Point]) -> float:
    """Of the training steps between an evaluation and the one before it; of the first evaluation, the first step."""
    start = max((point.step for point in evaluations if point.step < step), default=0)
    values = [point.value for point in history.points(trained) if start < point.step <= step]
    return mean(values or history.first(trained, 1))


def _advice(step: int, checkpoints: Sequence[Checkpoint]) -> str:
    saved = next(
        (point for point in checkpoints if point.step == step and (point.sampler_path or point.state_path)), None
    )
    if saved is None:
        return f"stop {after_step(step)}; no checkpoint is of it: keep_best=auto would have kept the best weights"
    return f"the weights of the checkpoint {saved.name}: {saved.sampler_path or saved.state_path}"
