"""Which way each metric is better."""

import re
from pathlib import Path

import pytest

from cookhouse.report import direction
from cookhouse.telemetry import COMPANIONS

PAGE = Path(__file__).parents[2] / "docs/reference/metrics.md"
NEITHER = {
    # how much there is, and how far a run has come
    *("num_tokens", "num_trained_tokens", "num_examples", "num_truncated", "num_untrained", "nll_tokens"),
    *("samples", "total_groups", "total_episodes", "total_turns", "total_ac_tokens", "epoch", "batch", "done_frac"),
    # what a run is like
    *("lr", "grad_norm", "entropy", "clip_frac", "position_bias", "answer_characters", "ac_tokens_per_turn"),
    *("kl_sample_train_v1", "kl_sample_train_v2", "kl_sample_train_v1_post", "kl_sample_train_v2_post"),
    *("kl_reference", "ob_tokens_per_turn", "turns_per_episode", "frac_mixed", "lag_mean", "lag_max"),
    *("chosen_reward", "rejected_reward", "chosen_logprob", "rejected_logprob", "chosen_tokens", "rejected_tokens"),
    *("groups_resampled", "averaging"),
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
    assert (direction(name) is None) == (name.split("/")[-1] in NEITHER or "/stop/" in name)


@pytest.mark.parametrize(
    ("name", "way"),
    [
        ("test/gsm8k/pass@8", "more"),
        ("test/gsm8k/pass@8_stderr", None),
        ("test/gsm8k/failed", "less"),
        ("train/forward_kl", "less"),
        ("teacher_kl", "less"),
        ("teacher_kl/arithmetic", "less"),
        ("teacher_kl_at/0004-0007", "less"),
        ("test/env/all/win_share_rejected", "more"),
        ("distill/dropped/cut", "less"),
        ("env/all/reward/total", "more"),
        ("optim/entropy", None),
    ],
)
def test_ways(name: str, way: str | None) -> None:
    assert direction(name) == way
