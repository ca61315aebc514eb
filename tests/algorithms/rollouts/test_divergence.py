"""When a run over rollouts warns that sampler and trainer are too far apart, and what it names as ways out."""

from typing import Any

import pytest

from cookhouse.algorithms.rollouts.objective import DivergenceWatch
from cookhouse.settings import ReinforcementSettings
from cookhouse.telemetry import Event, Record, Telemetry
from cookhouse.training import FinishedStep
from cookhouse.weights.checkpoints import Cursor


class Kept:
    def __init__(self) -> None:
        self.events: list[Event] = []

    def write(self, record: Record) -> None:
        assert isinstance(record, Event)
        self.events.append(record)

    def close(self) -> None: ...


def warned(divergences: list[float], **settings: Any) -> list[Event]:
    kept = Kept()
    watch = DivergenceWatch(Telemetry([kept]), ReinforcementSettings(**settings))
    for step, kl in enumerate(divergences):
        metrics = {"optim/kl_sample_train_v1": kl, "rollouts/lag_mean": 1.5}
        watch(FinishedStep(cursor=Cursor(step=step), metrics=metrics, seconds=1.0))
    return kept.events


def test_a_ratio_that_runs_away_is_told_once_with_its_figures() -> None:
    (event,) = warned([0.01, 0.34, 1.3, 2.0], max_steps_off_policy=2)
    assert (event.name, event.step) == ("run.warning", 3)
    assert event.metrics == {"optim/kl_sample_train_v1": 1.3, "rollouts/lag_mean": 1.5}
    for told in (
        "in step 3",
        "1.3 nats a token",
        "a lower max_steps_off_policy (now 2)",
        "loss_fn=ppo",
        "loss_fn=cispo",
    ):
        assert told in event.text["text"]
    assert "ppo_epochs" not in event.text["text"]


def test_what_is_set_otherwise_is_among_the_ways_out() -> None:
    (event,) = warned([0.5], num_substeps=4, temperature=0.7)
    assert "a lower num_substeps (now 4); temperature=1" in event.text["text"]
    assert "max_steps_off_policy" not in event.text["text"]


@pytest.mark.parametrize(
    ("divergences", "settings"),
    [
        ([0.3, -1.0, 0.02], {"max_steps_off_policy": 2}),
        ([float("nan")], {"max_steps_off_policy": 2}),
        ([2.0], {"max_steps_off_policy": 2, "loss_fn": "ppo"}),
        ([2.0], {"max_steps_off_policy": 2, "loss_fn": "cispo"}),
    ],
)
def test_what_is_near_or_bounded_is_not_told(divergences: list[float], settings: dict[str, Any]) -> None:
    assert warned(divergences, **settings) == []
