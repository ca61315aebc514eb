"""Figures of rollouts. What was not measured has no key; every mean names its denominator.

Legend: P groups, one for each problem.
"""

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

import numpy as np

from cookhouse.rl.env.own_metrics import own_name, plain_name
from cookhouse.rl.env.tags import ALL
from cookhouse.rl.rollouts.failures import GroupFailedError
from cookhouse.rl.trajectory import RolloutFailure, Trajectory, TrajectoryGroup, differ

_NAMES = frozenset(
    {
        *("reward/total", "reward/total_std", "frac_truncated", "turns_per_episode"),
        *("ac_tokens_per_turn", "ob_tokens_per_turn"),
        *("total_groups", "total_episodes", "total_turns", "total_ac_tokens"),
    }
)
_ROOMS = ("stop/", "by_group/")
_ENDS = ("_n", "_stderr", "_not_finite")
"""Of figures that stand next to a mean."""
_GOOD_REWARD = 0.5
"""A group whose rewards are all equal is all good from here on, and all bad below."""


def group_metrics(groups_P: Sequence[TrajectoryGroup]) -> dict[str, float]:
    """`env/all/…`, and `env/<tag>/…` for each tag that some of the groups lack. Under each:

    reward/total          mean total reward per trajectory, over total_episodes
    reward/total_std      standard deviation of these rewards, denominator total_episodes
    ac_tokens_per_turn    sampled tokens per turn
    ob_tokens_per_turn    tokens of the whole observation per turn
    turns_per_episode     turns per trajectory
    total_groups, total_episodes, total_turns, total_ac_tokens
    by_group/frac_mixed, frac_all_good, frac_all_bad     shares of groups: rewards differ, or all equal from 0.5 on,
                                                         or all equal below
    stop/<reason>         share of trajectories that ended so
    frac_truncated        share of trajectories that a limit of tokens ended
    <name>                mean of an environment's own metric over the steps and groups that reported a finite value
    <name>_n              number of such reports
    <name>_not_finite     number of reports that were NaN or infinite, where there are some
    <mean>_stderr         standard error of reward/total or <name>, of independent groups; not of a single one

    A metric of an environment's own that has one of these names is `own/<name>`.
    """
    scopes = {ALL: list(groups_P)}
    names = own_names(groups_P)
    for tag in sorted({tag for group in groups_P for tag in group.tags}):
        tagged = [group for group in groups_P if tag in group.tags]
        if len(tagged) < len(groups_P):
            scopes[tag] = tagged
    return {
        f"env/{scope}/{name}": value
        for scope, groups in scopes.items()
        for name, value in _scope(groups, names).items()
    }


def own_names(groups_P: Sequence[TrajectoryGroup]) -> dict[str, str]:
    """Names of the environments' own metrics next to the figures of the run."""
    theirs = {name for group in groups_P for report in _reports(group) for name in report}
    names: dict[str, str] = {}
    shown: set[str] = set()
    for name in sorted(theirs, key=len):  # a mean before what stands next to it
        found = own_name(name) if _is_taken(plain_name(name), theirs) else name
        while found in shown or _stands_beside(found, shown):
            found = own_name(found)
        names[name] = found
        shown.add(found)
    return names


def not_finite(groups_P: Sequence[TrajectoryGroup]) -> Counter[str]:
    """Number of values of each of the environments' own metrics that are NaN or infinite."""
    reports = [report for group in groups_P for report in _reports(group)]
    return Counter(name for report in reports for name, value in report.items() if not math.isfinite(value))


def _is_taken(name: str, theirs: Collection[str]) -> bool:
    if name in _NAMES or name.startswith(_ROOMS):
        return True
    return _stands_beside(name, {*theirs, "reward/total"})


def _stands_beside(name: str, means: Collection[str]) -> bool:
    return any(name.endswith(end) and name.removesuffix(end) in means for end in _ENDS)


def failure_metrics(groups_P: Sequence[TrajectoryGroup], lost: Sequence[GroupFailedError] = ()) -> dict[str, float]:
    """Counts of what went wrong in groups that came back and groups that were lost.

    rollouts/failures/env, rollouts/failures/sampling     failed attempts
    rollouts/retried       members that failed an attempt, or whose partner did, and gave a trajectory after all
    rollouts/dropped       members given up in groups that went on without them, those of whom a partner failed included
    rollouts/groups_failed
    """
    counts: Counter[str] = Counter()
    for group in groups_P:
        given_up = {failure.member for failure in group.failures if failure.outcome == "given_up"}
        retried = {failure.member for failure in group.failures if failure.outcome == "retried"} - given_up
        counts["retried"] += len(retried)
        counts["dropped"] += len(given_up)
    for failure in _all_failures(groups_P, lost):
        counts[f"failures/{failure.origin}"] += 1
    counts["groups_failed"] = len(lost)
    names = ("failures/env", "failures/sampling", "retried", "dropped", "groups_failed")
    return {f"rollouts/{name}": float(counts[name]) for name in names}


def _all_failures(groups_P: Sequence[TrajectoryGroup], lost: Sequence[GroupFailedError]) -> Iterable[RolloutFailure]:
    for failures in [*(group.failures for group in groups_P), *(error.failures for error in lost)]:
        yield from failures


def _scope(groups_P: Sequence[TrajectoryGroup], names: Mapping[str, str]) -> dict[str, float]:
    trajectories = [trajectory for group in groups_P for trajectory in group.trajectories_G]
    if not trajectories:
        return {}
    rewards_P = [group.get_total_rewards() for group in groups_P]
    return {
        **_mean("reward/total", rewards_P),
        "reward/total_std": float(np.std(np.concatenate(rewards_P))),
        "total_groups": float(len(groups_P)),
        **_lengths(trajectories),
        **_by_group(groups_P),
        **_stop_reasons(trajectories),
        "frac_truncated": sum(trajectory.is_truncated for trajectory in trajectories) / len(trajectories),
        **_own_metrics(groups_P, names),
    }


def _lengths(trajectories: Sequence[Trajectory]) -> dict[str, float]:
    turns = [transition for trajectory in trajectories for transition in trajectory.transitions]
    num_action_tokens = sum(len(turn.action.tokens) for turn in turns)
    totals = {
        "total_episodes": float(len(trajectories)),
        "total_turns": float(len(turns)),
        "total_ac_tokens": float(num_action_tokens),
        "turns_per_episode": len(turns) / len(trajectories),
    }
    if not turns:
        return totals
    return {
        **totals,
        "ac_tokens_per_turn": num_action_tokens / len(turns),
        "ob_tokens_per_turn": sum(turn.observation.length for turn in turns) / len(turns),
    }


def _by_group(groups_P: Sequence[TrajectoryGroup]) -> dict[str, float]:
    kinds = Counter(_kind(group.get_total_rewards()) for group in groups_P if group.trajectories_G)
    num_groups = kinds.total()
    return {f"by_group/frac_{kind}": kinds[kind] / num_groups for kind in ("mixed", "all_good", "all_bad")}


def _kind(rewards_G: Sequence[float]) -> str:
    if differ(rewards_G):
        return "mixed"
    return "all_good" if rewards_G[0] >= _GOOD_REWARD else "all_bad"


def _stop_reasons(trajectories: Sequence[Trajectory]) -> dict[str, float]:
    reasons = Counter(trajectory.stop_reason for trajectory in trajectories)
    return {f"stop/{reason}": count / len(trajectories) for reason, count in sorted(reasons.items())}


def _own_metrics(groups_P: Sequence[TrajectoryGroup], names: Mapping[str, str]) -> dict[str, float]:
    reports_P = [_reports(group) for group in groups_P]
    metrics: dict[str, float] = {}
    for name in sorted({name for reports in reports_P for report in reports for name in report}):
        values_P = [[report[name] for report in reports if name in report] for reports in reports_P]
        finite_P = [[value for value in values if math.isfinite(value)] for values in values_P]
        count, left_out = sum(map(len, finite_P)), sum(map(len, values_P)) - sum(map(len, finite_P))
        shown = names[name]
        metrics |= {**(_mean(shown, finite_P) if count else {}), f"{shown}_n": float(count)}
        if left_out:
            metrics[f"{shown}_not_finite"] = float(left_out)
    return metrics


def _reports(group: TrajectoryGroup) -> list[Mapping[str, float]]:
    turns = [turn.metrics for trajectory in group.trajectories_G for turn in trajectory.transitions]
    return [*group.group_metrics_G, *turns]


def _mean(name: str, values_P: Sequence[Sequence[float]]) -> dict[str, float]:
    """Mean over the values of all groups, and its standard error, clustered by group since the values of one depend on
    each other: √(P/(P − 1) · Σ_p (Σ_i (x_pi − mean))²) / n, over the P groups that have any
    (https://arxiv.org/abs/2411.00640, section 2.2).
    """
    clusters = [np.asarray(values, dtype=np.float64) for values in values_P if values]
    values = np.concatenate(clusters)
    mean = float(np.mean(values))
    if len(clusters) < 2:
        return {name: mean}
    spread = sum(float(np.sum(cluster - mean)) ** 2 for cluster in clusters)
    stderr = math.sqrt(len(clusters) / (len(clusters) - 1) * spread) / values.size
    return {name: mean, f"{name}_stderr": stderr}
