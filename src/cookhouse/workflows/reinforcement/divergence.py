"""Says when importance sampling no longer corrects for the weights that sampled."""

import math
from collections.abc import Callable

from cookhouse.settings import ReinforcementSettings
from cookhouse.telemetry import Telemetry, events, keys, step_number
from cookhouse.training import FinishedStep

WARN_AT = 0.5 * math.log(2)
"""Nats a token between sampler and trainer. Where log-ratios are normal, n ratios are worth n · exp(−2 KL) samples, so
that from here on less than half of what was sampled counts, and a few tokens with large ratios decide the step."""


class DivergenceWatch:
    """Warns by the event `run.warning`, once in a launch, where ratios run away and the loss bounds none."""

    def __init__(self, telemetry: Telemetry, settings: ReinforcementSettings) -> None:
        self._telemetry = telemetry
        self._settings = settings
        self._is_said = not settings.policy_loss.has_unbounded_ratio

    def __call__(self, finished: FinishedStep) -> None:
        found = {name: finished.metrics[name] for name in (keys.SAMPLER_KL, keys.EPOCHS_KL) if name in finished.metrics}
        kl = sum(found.values())  # that of the last of several epochs
        if self._is_said or not found or not kl >= WARN_AT:
            return
        self._is_said = True
        step = step_number(finished.cursor.step)
        lag = finished.metrics.get("rollouts/lag_mean", 0.0)
        text = (
            f"in step {step:,} the weights that sampled are {kl:.2g} nats a token from those that are "
            f"trained ({' + '.join(found)}), at a mean lag of {lag:.2g} steps; from {WARN_AT:.2f} on less than half of "
            f"what was sampled counts, and a few large ratios decide a step. Ways out: {_ways_out(self._settings)}"
        )
        metrics = {**found, "rollouts/lag_mean": lag}
        self._telemetry.event(events.RUN_WARNING, step=step, metrics=metrics, text=text)


def _ways_out(settings: ReinforcementSettings) -> str:
    lowered = [
        f"a lower {name} (now {value})"
        for name, value, least in (
            ("max_steps_off_policy", settings.max_steps_off_policy, 0),
            ("num_substeps", settings.num_substeps, 1),
            ("ppo_epochs", settings.ppo_epochs, 1),
        )
        if value > least
    ]
    other = [] if settings.temperature == 1 else ["temperature=1"]
    return "; ".join(
        [
            *lowered,
            *other,
            "loss_fn=ppo, which clips the ratio",
            "loss_fn=cispo, which truncates it and lets every token teach",
            "a lower learning_rate",
        ]
    )


def with_divergence_watch(
    log: Callable[[FinishedStep], None], telemetry: Telemetry, settings: ReinforcementSettings
) -> Callable[[FinishedStep], None]:
    """A log of steps with a `DivergenceWatch` behind it."""
    watch = DivergenceWatch(telemetry, settings)

    def log_and_watch(finished: FinishedStep) -> None:
        log(finished)
        watch(finished)

    return log_and_watch
