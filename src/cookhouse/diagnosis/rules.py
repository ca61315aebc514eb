"""Every rule of diagnosis, the gravest first, and what they find in the metrics of a run."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from cookhouse.diagnosis import held_out, progress, rewards
from cookhouse.diagnosis.finding import Finding
from cookhouse.diagnosis.history import MetricHistory
from cookhouse.diagnosis.rule import Rule, RunFacts
from cookhouse.telemetry import keys

MAX_FINDINGS: Final = 3
"""At a time."""
_LOSSES = (keys.TRAIN_REWARD, keys.TEACHER_KL, keys.TRAIN_LOSS, keys.PAIR_LOSS)

RULES: Final[Sequence[Rule]] = (
    Rule(
        name="no_tool_calls",
        severity="critical",
        when="in an environment with tools a share of {threshold} or fewer of the turns of the last {steps} steps "
        "called one, and most groups were not right",
        reads=(keys.TOOL_CALLS, keys.GROUPS_ALL_GOOD),
        threshold=0.01,
        steps=4,
        judges_short_runs=True,
        find=rewards.no_tool_calls,
    ),
    Rule(
        name="no_spread",
        severity="critical",
        when="a share of {threshold} of the groups had different rewards in the last {steps} steps, and not all of "
        "them were right",
        reads=(
            *(keys.GROUPS_MIXED, keys.GROUPS_ALL_GOOD, keys.TRAIN_GROUPS),
            *(keys.TRAIN_REWARD, keys.TRAIN_REWARD_STD),
        ),
        threshold=0.0,
        steps=4,
        judges_short_runs=True,
        find=rewards.no_spread,
    ),
    Rule(
        name="all_masked",
        severity="critical",
        when="with `overlong_answers=mask`, a share of {threshold} of the answers was cut in the last {steps} steps",
        reads=(keys.TRAIN_TRUNCATED,),
        threshold=1.0,
        steps=4,
        judges_short_runs=True,
        find=rewards.all_masked,
    ),
    Rule(
        name="tool_errors",
        severity="critical",
        when="a share of {threshold} or more of the tool calls of the last {steps} steps were errors",
        reads=(keys.TOOL_CALLS, keys.TOOL_ERRORS),
        threshold=0.5,
        steps=4,
        judges_short_runs=True,
        find=rewards.tool_errors,
    ),
    Rule(
        name="divergence",
        severity="warning",
        # Where log-ratios are normal, n ratios are worth n · exp(−2 KL) samples: from here on less than half.
        threshold=0.5 * math.log(2),
        steps=1,
        when="the weights that sampled were {threshold} nats a token or more from those that train, in the last step, "
        "and `loss_fn` bounds no ratio",
        reads=(keys.SAMPLER_KL, keys.EPOCHS_KL, keys.LAG_MEAN),
        find=rewards.divergence,
    ),
    Rule(
        name="entropy_collapse",
        severity="warning",
        when="entropy was {threshold} nats a token or less in each of the last {steps} steps, few groups had different "
        "rewards, and most were not right",
        reads=(keys.ENTROPY, keys.GROUPS_MIXED, keys.GROUPS_ALL_GOOD),
        threshold=0.02,
        steps=5,
        find=rewards.entropy_collapse,
    ),
    Rule(
        name="overlong_punishment",
        severity="warning",
        when="with `overlong_answers=punish`, the mean punishment of the last {steps} steps was larger than the mean "
        "reward, and {threshold} or more",
        reads=(keys.OVERLONG_PENALTY, keys.TRAIN_REWARD),
        threshold=0.05,
        steps=4,
        find=rewards.overlong_punishment,
    ),
    Rule(
        name="truncated",
        severity="warning",
        when="a share of {threshold} or more of the answers of the last {steps} steps was cut at a limit of tokens",
        reads=(keys.TRAIN_TRUNCATED,),
        threshold=0.3,
        steps=4,
        judges_short_runs=True,
        find=rewards.truncated,
    ),
    Rule(
        name="overfitting",
        severity="warning",
        when="after 3 evaluations or more, a held-out metric is worse than its best by more than two standard "
        "errors (where they were not measured, by a share of {threshold}), while training went on getting better",
        reads=("test/", *held_out.TRAINED),
        threshold=0.02,
        steps=1,
        find=held_out.overfitting,
    ),
    Rule(
        name="overoptimization",
        severity="warning",
        when="the share by a rule that nobody trains on has fallen from its highest by more than {threshold} standard "
        "errors, and that by the preference model has not",
        reads=("test/",),
        threshold=2.0,
        steps=1,
        find=held_out.overoptimization,
    ),
    Rule(
        name="flat_reward",
        severity="warning",
        when="after {steps} steps or more, the mean reward of the last 10 is no better than that of the first 10, by a "
        "standard error and by a share of {threshold}, although some groups had different rewards",
        reads=(keys.TRAIN_REWARD, keys.GROUPS_MIXED, keys.GROUPS_ALL_GOOD),
        threshold=0.01,
        steps=30,
        find=progress.flat_reward,
    ),
    Rule(
        name="flat_loss",
        severity="warning",
        when="the same of the training loss, in a run without rewards",
        reads=_LOSSES,
        threshold=0.01,
        steps=30,
        find=progress.flat_loss,
    ),
    Rule(
        name="learning_rate_gone",
        severity="warning",
        when="after {steps} steps or more, the learning rate had fallen to a share of {threshold} of its peak before "
        "reward or training loss got better",
        reads=(keys.LEARNING_RATE, *_LOSSES),
        threshold=0.05,
        steps=10,
        find=progress.learning_rate_gone,
    ),
    Rule(
        name="solved",
        severity="note",
        when="in a share of {threshold} of the groups of the last {steps} steps all rewards were equal, and 0.5 or "
        "more",
        reads=(keys.GROUPS_ALL_GOOD, keys.TRAIN_REWARD),
        threshold=1.0,
        steps=10,
        find=rewards.solved,
    ),
    Rule(
        name="too_early",
        severity="note",
        when="less than a share of {threshold} of the steps is done, and reward or training loss is no better yet",
        reads=(keys.LEARNING_RATE, *_LOSSES),
        threshold=0.05,
        steps=1,
        find=progress.too_early,
    ),
)
"""The first ones matter most: of several findings at a time these are shown."""

_READ = frozenset(name for rule in RULES for name in rule.reads)
_BEGINNINGS = tuple(name for name in _READ if name.endswith("/"))


def diagnose(rows: Iterable[Mapping[str, Any]], facts: RunFacts) -> list[Finding]:
    """Findings in the rows of a metrics file, the gravest first, at most `MAX_FINDINGS`."""
    return findings_in(MetricHistory(rows), facts)


def findings_in(history: MetricHistory, facts: RunFacts) -> list[Finding]:
    """The same, of rows that have been read."""
    found = (rule.finding(history, facts) for rule in RULES)
    return [finding for finding in found if finding is not None][:MAX_FINDINGS]


def is_read(name: str) -> bool:
    """True if a rule reads a metric."""
    return name in _READ or name.startswith(_BEGINNINGS)
