"""Series of metrics, for each rule one in which it finds something and some in which it does not."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

MIXED, GOOD, BAD = (f"env/all/by_group/frac_{kind}" for kind in ("mixed", "all_good", "all_bad"))
REWARD, STD, CUT = "env/all/reward/total", "env/all/reward/total_std", "env/all/frac_truncated"
CALLS, ERRORS = "env/all/tool_calls", "env/all/tool_errors"
GRPO: Mapping[str, Any] = {
    "advantage": "group_centered",
    "loss_fn": "importance_sampling",
    "constant_reward_groups": "keep",
}


@dataclass(frozen=True, kw_only=True)
class Series:
    rows: Sequence[Mapping[str, Any]]
    settings: Mapping[str, Any] = field(default_factory=dict)
    total_steps: int | None = 500
    says: str = ""
    """Part of the title, of one in which the rule finds something."""


def steps(count: int, **columns: Any) -> list[dict[str, Any]]:
    """Rows of so many steps. A column is a value, or a function of the step; a name's `__` stands for a slash."""
    return [
        {
            "step": step,
            "optim/lr": 1e-3,
            **{name.replace("__", "/"): value(step) if callable(value) else value for name, value in columns.items()},
        }
        for step in range(count)
    ]


def rollouts(count: int, mixed: float, good: float = 0.0, reward: Any = 0.0, **more: Any) -> list[dict[str, Any]]:
    """Rows of reinforcement learning on 16 groups a step, so many of which have rewards that differ."""
    named = {MIXED: mixed, GOOD: good, BAD: 1 - mixed - good, REWARD: reward, "env/all/total_groups": 16.0, STD: mixed}
    return steps(count, **(named | more))


def evaluated(found: Mapping[int, float], name: str = "test/nll", falls: bool = True) -> list[dict[str, Any]]:
    """Twenty steps of a training loss, with a held-out metric after some of them."""
    trained = steps(20, train__loss=(lambda step: 2 / (1 + step)) if falls else 1.0)
    return [*trained, *({"step": step, name: value} for step, value in found.items())]


def judged(model: Sequence[float], rule: Sequence[float], stderr: float = 0.01) -> list[dict[str, Any]]:
    """Evaluations by a preference model and a rule, five steps apart."""
    return [
        *steps(5 * len(model)),
        *(
            {
                "step": 5 * index,
                "test/env/all/win_share": by_model,
                "test/env/all/win_share_stderr": stderr,
                "test/env/all/rule": by_rule,
                "test/env/all/rule_stderr": stderr,
            }
            for index, (by_model, by_rule) in enumerate(zip(model, rule, strict=True))
        ),
    ]


def wobble(step: int) -> float:
    """Noise that repeats every few steps."""
    return 0.02 * math.sin(2.4 * step)


def linear(total: float) -> Any:
    return lambda step: 1e-3 * (1 - step / total)


FOUND: Mapping[str, Sequence[Series]] = {
    "no_tool_calls": (
        Series(
            rows=rollouts(4, mixed=0.0, **{CALLS: 0.0}),
            settings={**GRPO, "max_tokens": 8},
            says="no tool was called in the last 4 steps",
        ),
        Series(rows=rollouts(4, mixed=0.5, **{CALLS: 0.004}), settings=GRPO, says="in 0.4% of the turns in the last 4"),
    ),
    "no_spread": (
        Series(rows=rollouts(4, mixed=0), settings=GRPO, says="0 of 64 groups had different rewards in the last 4"),
        Series(rows=rollouts(1, mixed=0), settings=GRPO, total_steps=1, says="0 of 16 groups"),
        Series(rows=rollouts(9, mixed=0, good=0.5, reward=0.5), settings=GRPO, says="mean 0.5"),
        Series(rows=rollouts(4, mixed=0), settings={**GRPO, "advantage": "total_reward"}, says="0 of 64 groups"),
        Series(
            rows=[*rollouts(20, mixed=0.5), *({**row, "step": row["step"] + 20} for row in rollouts(4, mixed=0))],
            settings=GRPO,
            says="in the last 4 steps",
        ),
    ),
    "all_masked": (
        Series(rows=steps(4, **{CUT: 1.0}), settings={"overlong_answers": "mask"}, says="nothing is learned"),
    ),
    "tool_errors": (
        Series(rows=steps(4, **{CALLS: 1.5, ERRORS: 1.5}), says="100% of tool calls were errors in the last 4 steps"),
        Series(rows=steps(6, **{CALLS: lambda step: step, ERRORS: 2}), says="57% of tool calls"),
    ),
    "divergence": (
        Series(
            rows=steps(3, **{"optim/kl_sample_train_v1": lambda step: [0.0, 0.3, 1.3][step], "rollouts/lag_mean": 1.5}),
            settings=GRPO,
            says="the policy moved 1.3 nats a token from where it was sampled, in step 3, at a mean lag of 1.5 steps",
        ),
        Series(
            rows=steps(1, **{"optim/kl_sample_train_v1": 0.2, "optim/kl_ppo_epochs_v1": 0.2}),
            settings=GRPO,
            says="0.4 nats",
        ),
    ),
    "entropy_collapse": (
        Series(rows=rollouts(5, mixed=0.1, optim__entropy=0.001), settings=GRPO, says="entropy is near 0 (0.001 nats"),
    ),
    "overlong_punishment": (
        Series(
            rows=rollouts(4, mixed=0.5, reward=0.1, rollouts__overlong_penalty=0.4),
            settings={**GRPO, "overlong_answers": "punish"},
            says="0.4 on average, is larger than the reward, 0.1, in the last 4 steps",
        ),
    ),
    "truncated": (Series(rows=steps(4, **{CUT: 0.4}), settings={"max_tokens": 64}, says="40% of answers were cut"),),
    "overfitting": (
        Series(
            rows=evaluated({0: 3.0, 5: 2.0, 10: 1.5, 15: 1.8, 20: 2.4}),
            says="overfitting after step 10: held-out loss goes from 1.5 to 2.4 at step 20, while training loss goes "
            "from 0.25825 to 0.1118",
        ),
    ),
    "overoptimization": (
        Series(
            rows=judged([0.5, 0.6, 0.7, 0.8], [0.4, 0.9, 0.8, 0.5]),
            says="They part after step 5, where the rule's share is highest: by step 10 it falls from 0.9 to 0.8",
        ),
    ),
    "flat_reward": (
        Series(
            rows=rollouts(30, mixed=0.5, reward=lambda step: 0.3 + wobble(step)),
            settings=GRPO,
            says="reward in training is no better after 30 steps than at the beginning: 0.3",
        ),
    ),
    "flat_loss": (
        Series(rows=steps(30, train__loss=lambda step: 2 + wobble(step)), says="training loss is no better after 30"),
        Series(rows=steps(40, train__dpo_loss=lambda step: 0.693 + wobble(step) / 10), says="0.69"),
        Series(rows=steps(30, train__loss=lambda step: 1 + step / 10), says="1.45 → 3.45"),
    ),
    "learning_rate_gone": (
        Series(
            rows=steps(20, **{"optim/lr": linear(19.5), "train/loss": lambda step: 2 + wobble(step)}),
            total_steps=20,
            says="the learning rate had fallen to 2.6% of its peak by step 20, before training loss got better",
        ),
    ),
    "solved": (Series(rows=rollouts(10, mixed=0, good=1, reward=1.0), settings=GRPO, says="nothing is left to learn"),),
    "too_early": (Series(rows=steps(12, train__loss=2.0), says="12 of 500 steps: too early to judge training loss"),),
}
"""By rule."""

QUIET: Mapping[str, Sequence[Series]] = {
    "no_tool_calls": (
        Series(rows=rollouts(4, mixed=0.5, **{CALLS: 0.5}), settings=GRPO),
        Series(rows=rollouts(4, mixed=0.1, good=0.9, **{CALLS: 0.0}), settings=GRPO),  # right without
        Series(rows=rollouts(4, mixed=0.0), settings=GRPO),  # there are no tools
    ),
    "no_spread": (
        Series(rows=rollouts(3, mixed=0), settings=GRPO),  # fewer steps than it judges by
        Series(rows=rollouts(8, mixed=1 / 16), settings=GRPO),
        Series(rows=rollouts(8, mixed=0, good=1), settings=GRPO),
        Series(rows=rollouts(8, mixed=0), settings={**GRPO, "advantage": "none"}),  # a teacher's logprobs teach
        Series(rows=rollouts(8, mixed=0, **{STD: 0.5}), settings={**GRPO, "advantage": "total_reward"}),
        Series(rows=steps(8, train__loss=1.0)),
    ),
    "all_masked": (
        Series(rows=steps(4, **{CUT: 1.0}), settings={"overlong_answers": "keep"}),
        Series(rows=steps(4, **{CUT: 0.9}), settings={"overlong_answers": "mask"}),
    ),
    "tool_errors": (
        Series(rows=steps(8, **{CALLS: 1.0, ERRORS: 0.4})),
        Series(rows=steps(8, **{CALLS: 0.0, ERRORS: 0.0})),
    ),
    "divergence": (
        Series(rows=steps(3, **{"optim/kl_sample_train_v1": 0.34}), settings=GRPO),
        Series(rows=steps(3, **{"optim/kl_sample_train_v1": -1.0}), settings=GRPO),
        Series(rows=steps(3, **{"optim/kl_sample_train_v1": math.nan}), settings=GRPO),
        Series(rows=steps(3, **{"optim/kl_sample_train_v1": 2.0}), settings={**GRPO, "loss_fn": "ppo"}),
        Series(rows=steps(3, **{"optim/kl_sample_train_v1": 2.0}), settings={**GRPO, "loss_fn": "cispo"}),
    ),
    "entropy_collapse": (
        Series(rows=rollouts(5, mixed=0.1, optim__entropy=0.3), settings=GRPO),
        Series(rows=rollouts(5, mixed=0.1, good=0.9, optim__entropy=0.001), settings=GRPO),  # it is right
        Series(rows=rollouts(5, mixed=0.8, optim__entropy=0.001), settings=GRPO),
    ),
    "overlong_punishment": (
        Series(rows=rollouts(4, mixed=0.5, reward=0.5, rollouts__overlong_penalty=0.4), settings=GRPO),
        Series(rows=rollouts(4, mixed=0.5, reward=0.01, rollouts__overlong_penalty=0.02), settings=GRPO),
    ),
    "truncated": (Series(rows=steps(8, **{CUT: 0.2})),),
    "overfitting": (
        Series(rows=evaluated({0: 3.0, 5: 2.0, 10: 1.5, 15: 1.4, 20: 1.3})),
        Series(rows=evaluated({0: 3.0, 5: 2.0, 10: 1.5, 15: 1.51, 20: 1.52})),  # noise
        Series(rows=evaluated({0: 3.0, 10: 1.5, 20: 2.4}, falls=False)),
        Series(rows=evaluated({10: 1.5, 20: 2.4})),  # two evaluations
        Series(rows=evaluated({0: 3.0, 10: 1.5, 20: 2.4}, name="test/mine")),  # no direction
    ),
    "overoptimization": (
        Series(rows=judged([0.5, 0.6, 0.7], [0.4, 0.8, 0.9])),
        Series(rows=judged([0.5, 0.7, 0.6], [0.4, 0.9, 0.5])),  # both fall
        Series(rows=judged([0.5, 0.6, 0.7], [0.4, 0.9, 0.8], stderr=0.05)),  # less than chance gives
        Series(rows=judged([0.5], [0.4])),
    ),
    "flat_reward": (
        Series(rows=rollouts(30, mixed=0.5, reward=lambda step: 0.3 + 0.01 * step + wobble(step)), settings=GRPO),
        Series(rows=rollouts(29, mixed=0.5, reward=0.3), settings=GRPO),
        Series(rows=rollouts(40, mixed=0.2, good=0.8, reward=0.9), settings=GRPO),  # as good as it gets
        Series(rows=rollouts(40, mixed=0, reward=0.0), settings=GRPO),  # said by no_spread
    ),
    "flat_loss": (
        Series(rows=steps(60, train__loss=lambda step: (2 - 0.2 * step if step < 5 else 1.0) + wobble(step))),
        Series(rows=steps(60, train__loss=lambda step: 0.01 + wobble(step) / 10)),  # little is left to learn
        Series(rows=rollouts(40, mixed=0.5, train__loss=1.0), settings=GRPO),
    ),
    "learning_rate_gone": (
        Series(rows=steps(20, **{"optim/lr": linear(20), "train/loss": lambda step: 2 - 0.05 * step}), total_steps=20),
        Series(rows=steps(20, train__loss=2.0), total_steps=20),  # constant
        Series(rows=steps(20, **{"optim/lr": lambda step: 1e-3 * step, "train/loss": 2.0})),  # warmup
        Series(rows=steps(20, **{"optim/lr": 0.0, "train/loss": 2.0})),
    ),
    "solved": (
        Series(rows=rollouts(9, mixed=0, good=1), settings=GRPO),
        Series(rows=rollouts(20, mixed=0.1, good=0.9), settings=GRPO),
    ),
    "too_early": (
        Series(rows=steps(12, train__loss=2.0), total_steps=100),
        Series(rows=steps(12, train__loss=lambda step: 2 - 0.1 * step)),  # it gets better
        Series(rows=steps(12, train__loss=2.0), total_steps=None),
    ),
}
