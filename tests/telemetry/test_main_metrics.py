"""The metrics that a run writes by default."""

import pytest

from cookhouse.diagnosis import RULES
from cookhouse.telemetry import Event, MetricsRow, Record, Telemetry, is_detail
from cookhouse.telemetry.keys import BUILT_IN, GRAD_NORM, POLICY_LOSS, TRAIN_LOSS, TRAIN_REWARD
from cookhouse.telemetry.main_metrics import DETAILS_OF_ONE, main_metrics


def kept(*names: str, value: float = 1.0, named: tuple[str, ...] = ()) -> list[str]:
    return [*main_metrics(dict.fromkeys(names, value), named)]


def test_what_a_rule_reads_is_a_main_metric() -> None:
    # Catches a rule of the diagnosis that finds nothing, since nothing that it reads is written.
    read = {name for rule in RULES for name in rule.reads if not name.endswith("/")}
    assert len(read) > 15
    assert kept(*sorted(read)) == sorted(read)
    assert not any(is_detail(f"test/env/all/{name}{end}") for name in ("rule", "win_share") for end in ("", "_stderr"))


def test_what_tells_most_of_a_run_is_a_main_metric() -> None:
    # Catches a run without a headline, and a chart above the others that is empty.
    placed = {metric.name for metric in BUILT_IN.values() if (metric.chart, metric.headline) != (None, None)}
    assert {name for name in placed if is_detail(name)} == {POLICY_LOSS}
    assert kept(TRAIN_LOSS, TRAIN_REWARD, GRAD_NORM, "optim/policy_loss", "time/step_seconds")[-2:] == [
        "optim/policy_loss",
        "time/step_seconds",
    ]


@pytest.mark.parametrize(
    "name",
    ["reward/total", "ac_tokens_per_turn", "ob_tokens_per_turn", "turns_per_episode", "format", "correct"]
    + [f"by_group/frac_{kind}" for kind in ("mixed", "all_good", "all_bad")],
)
def test_what_every_comparison_with_other_systems_needs_is_a_main_metric(name: str) -> None:
    assert kept(f"env/all/{name}", f"test/env/all/{name}") == [f"env/all/{name}", f"test/env/all/{name}"]


def test_a_name_that_is_not_known_is_a_users_own_and_kept() -> None:
    own = ["verdict", "test/sums", "env/all/is_number", "env/mine/is_number", "env/all/own/total_turns", "optim/norm"]
    assert kept(*own, "test/x", "test/x_n", "test/x_stderr") == [*own, "test/x", "test/x_n", "test/x_stderr"]


def test_of_one_environment_reward_and_right_answers_are_kept() -> None:
    # Catches three tags that write twenty metrics each, in training and again at an evaluation.
    whole = [f"{part}env/sums/{name}" for part in ("", "test/") for name in ("reward/total", "correct")]
    others = [f"{part}env/sums/{name.replace('KIND', 'x')}" for part in ("", "test/") for name in DETAILS_OF_ONE]
    assert kept(*whole, *others, "env/sums/total_turns", "env/sums/stop/done") == whole


def test_errors_are_kept_of_what_is_held_out_and_of_the_reward() -> None:
    means = ["reward/total", "correct", "mine"]
    names = [f"env/all/{name}{end}" for name in means for end in ("", "_stderr", "_n")]
    trained = ["env/all/reward/total", "env/all/reward/total_stderr", "env/all/reward/total_n"]
    assert kept(*names) == [*trained, "env/all/correct", "env/all/mine"]
    held_out = [f"test/{name}" for name in names]
    assert kept(*held_out) == held_out
    assert kept("test/env/sums/format", "test/env/sums/format_stderr", "test/env/sums/format_n") == []
    assert kept("env/all/column_n") == ["env/all/column_n"], "the error of nothing"


def test_a_failure_is_kept_and_none_is_not() -> None:
    names = ["rollouts/failures/env", "test/rollouts/dropped", "teacher/rollouts/groups_failed"]
    assert kept(*names) == names
    assert kept(*names, value=0.0) == []


def test_a_metric_that_a_setting_names_is_kept() -> None:
    name = "test/env/sums/format"
    assert kept(name, "env/sums/format", named=(name,)) == [name]


def test_every_sink_gets_the_chosen_metrics_of_rows_and_events() -> None:
    # Catches an event of a step that brings to a sink what its row leaves out.
    class Keeping:
        def __init__(self) -> None:
            self.records: list[Record] = []

        def write(self, record: Record) -> None:
            self.records.append(record)

        def close(self) -> None: ...

    first, second = Keeping(), Keeping()
    values: dict[str, float | str] = {"train/loss": 1.0, "rollouts/lag_max": 2.0, "verdict": "good"}
    with Telemetry([first, second]) as telemetry:
        telemetry.metrics(0, values)
        telemetry.choose("main")
        telemetry.metrics(1, values)
        telemetry.event("rl.step", step=2, metrics={"train/loss": 1.0, "rollouts/lag_max": 2.0}, verdict="good")
    assert first.records == second.records
    assert first.records == [
        MetricsRow(step=0, metrics=values),
        MetricsRow(step=1, metrics={"train/loss": 1.0, "verdict": "good"}),
        Event(name="rl.step", step=2, metrics={"train/loss": 1.0}, text={"verdict": "good"}),
    ]
