"""Each rule finds what it is for, and nothing where that is not."""

import math
from typing import Any

import pytest
from tests.diagnosis.recorded import DATA, recorded
from tests.diagnosis.series import FOUND, GRPO, MIXED, QUIET, REWARD, Series, evaluated, rollouts, steps

from cookhouse.diagnosis import RULES, Finding, MetricHistory, RunFacts, diagnose, is_read
from cookhouse.recipes import every_recipe
from cookhouse.weights.checkpoints import Checkpoint

BY_NAME = {rule.name: rule for rule in RULES}
RECORDED = sorted(path.stem for path in DATA.glob("*.json"))


def found_by(rule: str, series: Series) -> Finding | None:
    facts = RunFacts(settings=series.settings, total_steps=series.total_steps, declared={})
    return BY_NAME[rule].finding(MetricHistory(series.rows), facts)


def test_every_rule_has_both_kinds_of_series() -> None:
    assert [*FOUND] == [*QUIET] == [*BY_NAME]


@pytest.mark.parametrize(("rule", "series"), [(rule, each) for rule, several in FOUND.items() for each in several])
def test_a_rule_finds_what_it_is_for_with_the_figures(rule: str, series: Series) -> None:
    finding = found_by(rule, series)
    assert finding is not None
    assert series.says in finding.title
    assert finding.advice
    assert (finding.name, finding.severity) == (rule, BY_NAME[rule].severity)
    assert finding.evidence.keys() <= {name for row in series.rows for name in row} | {"progress/done_frac"}
    assert all(map(is_read, finding.evidence.keys() - {"progress/done_frac"}))


@pytest.mark.parametrize(("rule", "series"), [(rule, each) for rule, several in QUIET.items() for each in several])
def test_a_rule_finds_nothing_where_that_is_not(rule: str, series: Series) -> None:
    # Catches a diagnosis that cries wolf.
    assert found_by(rule, series) is None


@pytest.mark.parametrize("recipe", RECORDED)
def test_no_rule_finds_anything_in_a_healthy_run(recipe: str) -> None:
    rows, facts = recorded(recipe)
    assert rows
    assert diagnose(rows, facts) == []
    # Nor in any of its steps; a note says no more than that it is early.
    history, said = MetricHistory(), set[str]()
    for row in rows:
        history.add(row)
        said |= {finding.name for rule in RULES if (finding := rule.finding(history, facts)) is not None}
    assert said <= {"too_early"}


def test_recorded_runs_are_of_recipes() -> None:
    assert len(RECORDED) >= 12
    assert {*RECORDED} <= {each.name for each in every_recipe()}


def test_at_most_three_are_said_the_gravest_first() -> None:
    rows = rollouts(40, mixed=0, optim__entropy=0.001, **{"env/all/frac_truncated": 0.5})
    rows = [{**row, "optim/kl_sample_train_v1": 1.0} for row in rows]
    found = diagnose(rows, RunFacts(settings=GRPO, total_steps=40, declared={}))
    assert [finding.name for finding in found] == ["no_spread", "divergence", "entropy_collapse"]


def test_what_is_set_is_in_the_advice() -> None:
    settings = {**GRPO, "max_steps_off_policy": 2, "num_substeps": 1, "temperature": 0.7}
    rows = steps(1, **{"optim/kl_sample_train_v1": 0.5})
    [finding] = [each for each in diagnose(rows, RunFacts(settings=settings)) if each.name == "divergence"]
    assert "a lower max_steps_off_policy (now 2); temperature=1; loss_fn=ppo" in finding.advice
    assert "num_substeps" not in finding.advice


def test_overfitting_names_the_checkpoint_to_take() -> None:
    def saved(step: int) -> Checkpoint:
        place = {"state_path": None, "sampler_path": f"tinker://x/{step}"}
        return Checkpoint(name=f"{step:06d}", epoch=0, batch=0, step=step, final=False, **place)  # type: ignore[arg-type]

    rows = evaluated({0: 3.0, 5: 2.0, 10: 1.5, 15: 1.8, 20: 2.4})
    [finding] = diagnose(rows, RunFacts(checkpoints=lambda: [saved(5), saved(10)], declared={}))
    assert finding.advice == "the weights of the checkpoint 000010: tinker://x/10"
    [finding] = diagnose(rows, RunFacts(checkpoints=lambda: [saved(20)], declared={}))
    assert "keep_best=auto would have kept the best weights" in finding.advice


def test_a_share_has_to_fall_by_more_than_two_standard_errors() -> None:
    def found(error: float) -> list[Finding]:
        made = evaluated({0: 0.1, 5: 0.5, 10: 0.8, 15: 0.7, 20: 0.7}, name="test/exact_match")
        rows = [{**row, "test/exact_match_stderr": error} if "test/exact_match" in row else row for row in made]
        return diagnose(rows, RunFacts(declared={}))

    assert found(0.05) == []
    assert found(0.03)[0].title.startswith("overfitting after step 10: exact match goes from 80% to 70% at step 20")


@pytest.mark.parametrize("value", [1e308, -1e308, 10**400, True, "text", None, math.inf])
def test_values_and_settings_of_any_kind_break_nothing(value: Any) -> None:
    # Catches a page or a list of runs that a strange file ends.
    names = {name for rule in RULES for name in rule.reads if not name.endswith("/")}
    rows = [{"step": step, **dict.fromkeys(names, value), "optim/lr": 1.0} for step in range(40)]
    settings = {name: [value] for name in ("advantage", "loss_fn", "max_steps_off_policy", "overlong_answers")}
    assert isinstance(diagnose(rows, RunFacts(settings=settings, total_steps=40)), list)


def test_of_two_rows_of_a_step_the_later_holds() -> None:
    history = MetricHistory([{"step": 0, REWARD: 1.0}, {"step": 0, REWARD: 2.0}, {"step": 1, MIXED: math.nan}])
    assert history.points(REWARD) == [(1, 2.0)]
    assert history.points(MIXED) == []
