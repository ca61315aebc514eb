"""Which way a metric is better, as far as its name tells."""

from collections.abc import Callable, Iterable
from typing import Literal

from cookhouse.telemetry import COMPANIONS

Direction = Literal["less", "more"]
_LESS_IS_BETTER = {
    *("nll", "bits_per_byte", "malformed", "loss", "dpo_loss", "answered_rejected", "order_disagreement"),
    *("forward_kl", "teacher_kl", "teacher_kl_at", "failed", "not_compared", "dropped", "cut_to_nothing"),
    *("failures", "retried", "groups_failed", "frac_all_bad", "tool_errors", "invalid_move", "num_skipped_rows"),
}
_MORE_IS_BETTER = {
    *("exact_match", "reward", "correct", "correct_norm", "correct_loose", "format", "accuracy", "margin"),
    *("instructions_strict", "instructions_loose", "answered_chosen", "answer_win_rate", "agreement"),
    *("win_rate_chosen", "win_rate_initial", "win_share_chosen", "win_share_rejected", "win_share_initial"),
    *("win_share", "win_minus_loss", "rule", "precision", "recall", "f1", "allowed", "frac_all_good"),
}
"""Parts of a metric's name."""
_PASS_AT = "pass@"


def direction(name: str) -> Direction | None:
    """Whether less or more of a metric is better; None: nobody can tell."""
    if name.endswith(COMPANIONS):
        return None
    parts = set(name.split("/"))
    if parts & _LESS_IS_BETTER:
        return "less"
    return "more" if parts & _MORE_IS_BETTER or any(part.startswith(_PASS_AT) for part in parts) else None


def best(name: str, values: Iterable[float]) -> float | None:
    """The best of the values of a metric; None where there is none or nobody can tell."""
    choose: dict[Direction | None, Callable[[list[float]], float]] = {"less": min, "more": max}
    found = list(values)
    way = direction(name)
    return None if way is None or not found else choose[way](found)
