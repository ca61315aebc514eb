"""Rules over rollouts: whether rewards teach something, and what spoils them."""

from cookhouse.diagnosis.history import MetricHistory
from cookhouse.diagnosis.rule import Found, Rule, RunFacts, in_steps, mean
from cookhouse.losses.policy_losses import POLICY_LOSSES
from cookhouse.telemetry import keys, number

_BY_GROUP = ("group_centered", "normalized", "leave_one_out", "gae")
"""Advantages that are 0 in a group of equal rewards."""


def no_spread(rule: Rule, history: MetricHistory, facts: RunFacts) -> Found | None:
    """No group had different rewards, and not because all of them are right."""
    if not facts.learns_by_reward or not _is_constant(rule, history, facts):
        return None
    count = len(history.last(keys.GROUPS_MIXED, rule.steps))
    good = mean(history.last(keys.GROUPS_ALL_GOOD, count) or [0.0])
    if good == 1:
        return None
    reward = mean(history.last(keys.TRAIN_REWARD, count))
    groups = sum(history.last(keys.TRAIN_GROUPS, count))
    is_raised = facts.settings.get("temperature", 1) > 1
    warmer = "" if is_raised else f"a higher temperature{facts.now('temperature')}, "
    advice = (
        f"easier problems, part of the reward for part of the way, {warmer}or more rollouts per problem, "
        f"group_size{facts.now('group_size')}"
    )
    if facts.settings.get("constant_reward_groups") in ("keep", "remove"):
        advice += "; where some groups differ, constant_reward_groups=replace draws problems until enough do"
    return (
        f"0 of {groups:,.0f} groups had different rewards {in_steps(count)} (mean {number(reward)}): rewards give no "
        "gradient",
        {keys.GROUPS_MIXED: 0.0, keys.GROUPS_ALL_GOOD: good, keys.TRAIN_REWARD: reward},
        advice,
    )


def solved(rule: Rule, history: MetricHistory, facts: RunFacts) -> Found | None:
    """Every rollout of every group has the same reward, and that is a good one."""
    good = history.last(keys.GROUPS_ALL_GOOD, rule.steps)
    if not facts.learns_by_reward or not good or min(good) < rule.threshold:
        return None
    reward = mean(history.last(keys.TRAIN_REWARD, rule.steps))
    return (
        f"all groups had one reward, 0.5 or more, {in_steps(len(good))} (mean {number(reward)}): nothing is left to "
        "learn from these problems",
        {keys.GROUPS_ALL_GOOD: 1.0, keys.TRAIN_REWARD: reward},
        "harder problems, or stop here",
    )


def all_masked(rule: Rule, history: MetricHistory, facts: RunFacts) -> Found | None:
    """Every answer is cut, and cut answers are left out of the loss."""
    cut = history.last(keys.TRAIN_TRUNCATED, rule.steps)
    if facts.settings.get("overlong_answers") != "mask" or not cut or min(cut) < rule.threshold:
        return None
    return (
        f"all answers were cut at a limit of tokens {in_steps(len(cut))}, and overlong_answers=mask leaves them out: "
        "nothing is learned",
        {keys.TRAIN_TRUNCATED: 1.0},
        f"raise max_tokens{facts.now('max_tokens')}",
    )


def no_tool_calls(rule: Rule, history: MetricHistory, facts: RunFacts) -> Found | None:
    """Hardly a turn calls a tool, and most groups are not right without."""
    calls, good = (history.last(name, rule.steps) for name in (keys.TOOL_CALLS, keys.GROUPS_ALL_GOOD))
    if not facts.learns_by_reward or not calls or mean(calls) > rule.threshold or mean(good or [0.0]) > 0.5:
        return None
    number_of = "no tool was called" if not sum(calls) else f"a tool was called in {mean(calls):.1%} of the turns"
    return (
        f"{number_of} {in_steps(len(calls))}: reward cannot teach what is never tried",
        {keys.TOOL_CALLS: mean(calls)},
        "train on conversations with calls first, and start from that run: load_checkpoint_path=RUN (`cookhouse new "
        f"tools` prints both commands); max_tokens{facts.now('max_tokens')} has to hold a call",
    )


def tool_errors(rule: Rule, history: MetricHistory, facts: RunFacts) -> Found | None:
    """Most calls of tools are answered with an error."""
    del facts
    calls, errors = (history.last(name, rule.steps) for name in (keys.TOOL_CALLS, keys.TOOL_ERRORS))
    if not sum(calls) or (share := sum(errors) / sum(calls)) < rule.threshold:
        return None
    return (
        f"{share:.0%} of tool calls were errors {in_steps(len(calls))}",
        {keys.TOOL_CALLS: mean(calls), keys.TOOL_ERRORS: mean(errors)},
        "read a rollout, where the tool's answer says what was wrong with the call; then say in the prompt or in the "
        "tool's description which names and arguments it takes",
    )


def truncated(rule: Rule, history: MetricHistory, facts: RunFacts) -> Found | None:
    """Many answers end at a limit of tokens."""
    cut = history.last(keys.TRAIN_TRUNCATED, rule.steps)
    if not cut or (share := mean(cut)) < rule.threshold:
        return None
    limit = facts.settings.get("max_tokens")
    at = "a limit of tokens" if limit is None else f"a limit of tokens, max_tokens={limit}"
    return (
        f"{share:.0%} of answers were cut at {at}, {in_steps(len(cut))}",
        {keys.TRAIN_TRUNCATED: share},
        "raise max_tokens, ask for shorter answers in the prompt, or leave cut answers out of the loss by "
        "overlong_answers=mask",
    )


def overlong_punishment(rule: Rule, history: MetricHistory, facts: RunFacts) -> Found | None:
    """The punishment for length outweighs the reward."""
    penalties = history.last(keys.OVERLONG_PENALTY, rule.steps)
    rewards = history.last(keys.TRAIN_REWARD, rule.steps)
    if not penalties or not rewards:
        return None
    penalty, reward = mean(penalties), mean(rewards)
    if penalty < rule.threshold or penalty <= abs(reward):
        return None
    return (
        f"the punishment for overlong answers, {number(_short(penalty))} on average, is larger than the reward, "
        f"{number(_short(reward))}, {in_steps(len(penalties))}: length is most of what is learned",
        {keys.OVERLONG_PENALTY: penalty, keys.TRAIN_REWARD: reward},
        f"raise max_tokens{facts.now('max_tokens')}, lower overlong_cache_tokens, or overlong_answers=mask",
    )


def divergence(rule: Rule, history: MetricHistory, facts: RunFacts) -> Found | None:
    """Sampler and trainer are so far apart that a few tokens decide a step, and the loss bounds no ratio."""
    loss = POLICY_LOSSES.get(str(facts.settings.get("loss_fn")))
    if loss is None or not loss.has_unbounded_ratio:
        return None
    epochs = {point.step: point.value for point in history.points(keys.EPOCHS_KL)[-rule.steps :]}
    by_step = {
        point.step: point.value + epochs.get(point.step, 0.0)  # that of the last of several epochs
        for point in history.points(keys.SAMPLER_KL)[-rule.steps :]
    }
    step = max(by_step, key=by_step.__getitem__, default=None)
    if step is None or by_step[step] < rule.threshold:
        return None
    lag = next((point.value for point in history.points(keys.LAG_MEAN)[-rule.steps :] if point.step == step), None)
    said = "" if lag is None else f", at a mean lag of {lag:.2g} steps"
    return (
        f"the policy moved {by_step[step]:.2g} nats a token from where it was sampled, in step {step:,}{said}: from "
        f"{rule.threshold:.2f} on less than half of what was sampled counts, and a few large ratios decide a step",
        {keys.SAMPLER_KL: by_step[step], **({} if lag is None else {keys.LAG_MEAN: lag})},
        _bounds(facts),
    )


def _bounds(facts: RunFacts) -> str:
    lowered = [
        f"a lower {name} (now {value})"
        for name, least in (("max_steps_off_policy", 0), ("num_substeps", 1), ("ppo_epochs", 1))
        if isinstance(value := facts.settings.get(name), int) and value > least
    ]
    other = [] if facts.settings.get("temperature", 1) == 1 else ["temperature=1"]
    bounded = ["loss_fn=ppo, which clips the ratio", "loss_fn=cispo, which truncates it and lets every token teach"]
    return "; ".join([*lowered, *other, *bounded, f"a lower learning_rate{facts.now('learning_rate')}"])


def entropy_collapse(rule: Rule, history: MetricHistory, facts: RunFacts) -> Found | None:
    """The answers of a group have become the same, before they are right."""
    entropy = history.last(keys.ENTROPY, rule.steps)
    mixed, good = (history.last(name, rule.steps) for name in (keys.GROUPS_MIXED, keys.GROUPS_ALL_GOOD))
    if not facts.learns_by_reward or not entropy or max(entropy) > rule.threshold:
        return None
    if not mixed or mean(mixed) > 0.5 or mean(good or [0.0]) > 0.5:
        return None
    return (
        f"entropy is near 0 ({number(_short(mean(entropy)))} nats a token) {in_steps(len(entropy))}: all answers of a "
        "group are nearly the same",
        {keys.ENTROPY: mean(entropy), keys.GROUPS_MIXED: mean(mixed)},
        f"a lower learning_rate{facts.now('learning_rate')}, kl_coef above 0{facts.now('kl_coef')}, a higher "
        f"temperature{facts.now('temperature')}, or weights from before it fell",
    )


def _is_constant(rule: Rule, history: MetricHistory, facts: RunFacts) -> bool:
    """True if no rewards of the last steps differed in what the advantages compare: a group, or the whole step."""
    mixed = history.last(keys.GROUPS_MIXED, rule.steps)
    if not mixed or max(mixed) > rule.threshold:
        return False
    is_by_group = facts.settings.get("advantage") in _BY_GROUP
    return is_by_group or max(history.last(keys.TRAIN_REWARD_STD, rule.steps), default=0.0) == 0.0


def _short(value: float) -> float:
    return float(f"{value:.2g}")
