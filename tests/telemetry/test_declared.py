"""What is known of each metric: which way it is better, where it stands, and how it reads."""

import re
from pathlib import Path
from typing import Any

import pytest

from cookhouse.errors import InputError
from cookhouse.telemetry import COMPANIONS, Metric, declare_metric, declared_of, find_metric, keys, ranked

PAGE = Path(__file__).parents[2] / "docs/reference/metrics.md"
NEITHER = {
    # how much there is, and how far a run has come
    *("num_tokens", "num_trained_tokens", "num_examples", "num_truncated", "num_untrained", "nll_tokens"),
    *("samples", "total_groups", "total_episodes", "total_turns", "total_ac_tokens", "epoch", "batch", "done_frac"),
    # what a run is like
    *("lr", "grad_norm", "entropy", "clip_frac", "position_bias", "answer_characters", "ac_tokens_per_turn"),
    *("kl_sample_train_v1", "kl_sample_train_v2", "kl_sample_train_v1_post", "kl_sample_train_v2_post"),
    *("kl_ppo_epochs_v1", "kl_ppo_epochs_v2"),
    *("kl_reference", "ob_tokens_per_turn", "turns_per_episode", "frac_mixed", "lag_mean", "lag_max"),
    *("chosen_reward", "rejected_reward", "chosen_logprob", "rejected_logprob", "chosen_tokens", "rejected_tokens"),
    *("groups_resampled", "frac_replaced", "averaging", "tool_calls"),
    # times, by which no run is chosen
    *("step_seconds", "tokens_per_second", "rollout_wait_seconds", "group_seconds_mean", "group_seconds_max"),
    # names that stand for others
    *("NAME", "METRIC"),
}


def documented() -> list[str]:
    """Names in the first column of the page's tables, companions left out."""
    rows = re.findall(r"^\| (`.*?) \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    names = [name for row in rows for name in re.findall(r"`([^`…]+)`", row) if "/" in name or name == "teacher_kl"]
    return [name for name in dict.fromkeys(names) if not name.endswith(COMPANIONS)]


@pytest.mark.parametrize("name", documented())
def test_every_metric_has_a_way_that_is_better_or_is_known_to_have_none(name: str) -> None:
    """Catches a metric of which no page marks the best value, and no sweep knows the best run."""
    assert (find_metric(name).direction is None) == (name.split("/")[-1] in NEITHER or "/stop/" in name)


LESS = {
    *("nll", "bits_per_byte", "malformed", "loss", "dpo_loss", "answered_rejected", "order_disagreement"),
    *("forward_kl", "teacher_kl", "teacher_kl_at", "failed", "not_compared", "dropped", "cut_to_nothing"),
    *("failures", "retried", "groups_failed", "frac_all_bad", "tool_errors", "invalid_move", "num_skipped_rows"),
    "frac_truncated",
}
MORE = {
    *("exact_match", "reward", "correct", "correct_norm", "correct_loose", "format", "accuracy", "margin"),
    *("instructions_strict", "instructions_loose", "answered_chosen", "answer_win_rate", "agreement"),
    *("win_rate_chosen", "win_rate_initial", "win_share_chosen", "win_share_rejected", "win_share_initial"),
    *("win_share", "win_minus_loss", "rule", "precision", "recall", "f1", "allowed", "frac_all_good", "pass@8"),
}
SHARES = {
    *("exact_match", "accuracy", "correct", "correct_loose", "correct_norm", "failed", "format", "malformed"),
    *("instructions_loose", "instructions_strict", "answered_chosen", "answered_rejected", "answer_win_rate"),
    *("win_rate_chosen", "win_rate_initial", "pass@8", "frac_truncated"),
}


@pytest.mark.parametrize("part", sorted(LESS | MORE))
@pytest.mark.parametrize("place", ["{}", "test/gsm8k/{}", "env/all/{}", "test/gsm8k/{}/easy", "test/{}/0004-0007"])
def test_a_metric_is_known_below_any_prefix_and_by_group(part: str, place: str) -> None:
    """Catches a benchmark or an environment whose metric loses its way or its percent below a name of its own."""
    metric = find_metric(place.format(part))
    assert metric.direction == ("less" if part in LESS else "more")
    assert metric.is_share == (part in SHARES)
    companions = [find_metric(f"{metric.name}{end}") for end in COMPANIONS]
    assert [each.direction for each in companions] == [None] * len(COMPANIONS)
    assert [each.is_share for each in companions] == [metric.is_share, False, False, False, False]


@pytest.mark.parametrize(
    ("name", "way"),
    [
        ("test/gsm8k/pass@8_stderr", None),
        ("distill/dropped/cut", "less"),
        ("env/all/reward/total", "more"),
        ("test/loss/correct", "more"),
        ("test/correct/failed", "less"),
        ("test/incorrect", None),
        ("test/correct_answers", None),
    ],
)
def test_what_stands_last_in_a_name_tells_and_only_whole_parts_do(name: str, way: str | None) -> None:
    assert find_metric(name).direction == way


CHARTS = [
    *("train/loss", "test/nll", "test/exact_match", "train/dpo_loss", "test/accuracy", "test/win_rate_chosen"),
    *("test/win_rate_initial", "test/answered_chosen", "train/margin", "teacher_kl", "env/all/reward/total"),
    *("test/env/all/reward/total", "test/margin", "test/answer_win_rate", "optim/kl_sample_train_v1"),
    *("optim/entropy", "optim/grad_norm", "optim/lr"),
]
HEADLINES = [
    *("test/exact_match", "test/env/all/reward/total", "test/correct", "test/accuracy", "test/nll"),
    *("env/all/reward/total", "train/accuracy", "train/loss", "train/dpo_loss", "optim/loss"),
]
LABELS = {
    "test/nll": "held-out loss",
    "test/env/all/reward/total": "held-out reward",
    "env/all/reward/total": "reward in training",
    "train/loss": "training loss",
    "train/dpo_loss": "training loss",
    "train/accuracy": "accuracy in training",
    "optim/loss": "policy loss",
    "test/exact_match": "exact match",
    "test/exact_match/add": "exact match/add",
    "test/sums/exact_match": "sums/exact match",
    "test/gsm8k/pass@8": "gsm8k/pass@8",
    "test/exact_match_n": "exact_match_n",
    "test/accuracy": "accuracy",
    "optim/lr": "optim/lr",
}


def test_the_first_charts_and_the_most_telling_metrics_stand_in_their_order() -> None:
    """Catches a page or a headline that begins with another metric than it did."""
    known = {name: find_metric(name) for name in [*keys.BUILT_IN, *documented()]}
    charts = {name: metric.chart for name, metric in known.items() if metric.chart is not None}
    assert sorted(charts, key=lambda name: charts[name]) == CHARTS
    assert ranked(name for name in reversed(HEADLINES)) == HEADLINES
    assert {name for name, metric in known.items() if metric.headline is not None} == set(HEADLINES)
    assert len(set(charts.values())) == len(CHARTS)


@pytest.mark.parametrize(("name", "label"), LABELS.items())
def test_labels(name: str, label: str) -> None:
    assert find_metric(name).label == label


FACTS: dict[str, Any] = {"direction": "less", "is_share": True, "label": "wrong sums", "chart": 5, "headline": 1}


@pytest.mark.usefixtures("nothing_declared")
def test_a_metric_of_ones_own_is_known_as_those_of_cookhouse() -> None:
    """Catches a user's metric without a direction, and one whose word weighs less than ours."""
    name = declare_metric(Metric("sums", **FACTS))
    whole = find_metric(f"test/mine/{name}")
    assert (whole.direction, whole.chart, whole.label, whole.text(0.5)) == ("less", 5, "mine/wrong sums", "50%")
    group = find_metric("test/sums/long")
    assert (group.direction, group.chart, group.headline) == ("less", None, None)
    declare_metric(Metric("test/exact_match"))
    assert find_metric("test/exact_match").direction is None
    assert find_metric("test/exact_match", own={}).direction == "more", "what another process declared is not asked"
    assert ranked(["test/exact_match", "test/sums"]) == ["test/sums", "test/exact_match"]
    assert declared_of(["test/sums/long", "train/loss"]) == [Metric("sums", **FACTS)]


@pytest.mark.usefixtures("nothing_declared")
def test_ones_own_word_holds_before_a_longer_name_and_for_a_name_that_ends_as_a_companion() -> None:
    """Catches a user's `correct` that counts less than our `test/correct`, and `top_n` taken for how many there are."""
    declare_metric(Metric("correct", direction="less"))
    declare_metric(Metric("top_n", direction="more"))
    assert find_metric("test/correct").direction == "less"
    assert find_metric("test/top_n").direction == "more"
    assert find_metric("test/top_n_n").direction is None
    assert find_metric("accuracy_stderr").is_share


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"direction": "up"}, "direction"),
        ({"chart": "first"}, "chart"),
        ({"headline": True}, "headline"),
        ({"is_share": 1}, "is_share"),
        ({"name": "a//b"}, "name"),
        ({"label": None}, "label"),
        ({"line": "{:99999999999}"}, "line"),
        ({"line": "{0.__class__}"}, "line"),
        ({"line": "{:.1%} of {:.0f}"}, "line"),
    ],
)
@pytest.mark.usefixtures("nothing_declared")
def test_what_a_metric_cannot_be_is_refused(wrong: dict[str, Any], field: str) -> None:
    with pytest.raises(InputError, match=f"^{field}="):
        declare_metric(Metric(**{"name": "score", **wrong}))
    assert find_metric("score") == Metric("score", label="score")
