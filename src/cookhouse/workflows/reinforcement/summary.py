"""Summary of a reinforcement run: what it would do, and what came of it."""

from collections.abc import Mapping
from typing import Any

from cookhouse.algorithms.base.facts import adapter_size, context_fact, model_fact
from cookhouse.algorithms.base.reference_place import reference_in_words
from cookhouse.runs import Figure, RunResult
from cookhouse.settings import ReinforcementSettings
from cookhouse.telemetry import keys, read_metrics
from cookhouse.workflows.reinforcement.state import ReinforcementState, RolloutState

Row = Mapping[str, Any]

_ROLLOUT_METRICS = {
    "reward_mean": keys.TRAIN_REWARD,
    "reward_std": keys.TRAIN_REWARD_STD,
    "num_trajectories": keys.TRAIN_EPISODES,
}
_PPO_METRICS = {
    "policy_loss": keys.POLICY_LOSS_MEAN,
    "value_loss": "train/value_loss",  # of a loss of one's own: the service's have none
    "entropy": keys.ENTROPY,
    "clip_fraction": keys.CLIP_SHARE,
}

_FIGURES = (
    ("env/all/reward/total", "mean reward", False),
    ("env/all/correct", "answered correctly", True),
    ("env/all/win_share", "win share, by the preference model", True),
    ("env/all/rule", "share that the rule finds good", True),
    ("env/all/agreement", "share on which both agree", True),
    ("env/all/ac_tokens_per_turn", "tokens sampled per turn", False),
)


def figures(first: Row, last: Row, after: Row) -> list[Figure]:
    """Held-out reward, correctness, win share and length, and reward and divergence in training."""
    held_out = [
        Figure(
            name=f"test/{name}",
            label=f"held-out {label}",
            before=first.get(f"test/{name}"),
            after=after.get(f"test/{name}"),
            is_share=is_share,
        )
        for name, label, is_share in _FIGURES
    ]
    trained = Figure(
        name=keys.TRAIN_REWARD,
        label="training reward, first and last",
        before=first.get(keys.TRAIN_REWARD),
        after=last.get(keys.TRAIN_REWARD),
    )
    divergence = Figure(
        name=keys.REFERENCE_KL,
        label="divergence from the reference (nats per token), first and last",
        before=first.get(keys.REFERENCE_KL),
        after=last.get(keys.REFERENCE_KL),
    )
    return [*held_out, trained, divergence]


def reinforcement_result(state: ReinforcementState, seconds: float) -> RunResult[ReinforcementState]:
    """The result, whose state has what the last step came to."""
    write_last_step(state)
    return training_result(figures, state, seconds)


def write_last_step(state: ReinforcementState) -> None:
    """Write the last step's `rollout_metrics` and `ppo_metrics`, also where this launch took no step; what was not
    measured has no key.
    """
    rows = read_metrics(state.folder.metrics)
    last: Row = next((row for row in reversed(rows) if keys.LEARNING_RATE in row), {})
    state.rollout_metrics = _named(_ROLLOUT_METRICS, last)
    state.ppo_metrics = _named(_PPO_METRICS, last)


def _named(names: Mapping[str, str], row: Row) -> dict[str, float]:
    return {name: row[metric] for name, metric in names.items() if metric in row}


def facts(state: ReinforcementState) -> dict[str, str]:
    """Facts of a plan: groups, steps, the loss, and the adapter."""
    lag = state.config.max_steps_off_policy
    rollouts = f"up to {lag} steps old" if lag else "of the present weights"
    return {**rollout_facts(state, loss=state.config.loss_fn, rollouts=rollouts), **reference_facts(state.config)}


def reference_facts(config: ReinforcementSettings) -> dict[str, str]:
    """Reference from which divergence is measured, where it is."""
    if not (config.kl_coef or config.compute_kl):
        return {}
    return {"reference": reference_in_words(config, config.kl_reference)}


def rollout_facts(state: RolloutState, *, loss: str, rollouts: str = "of the present weights") -> dict[str, str]:
    """The same of any run over rollouts."""
    config = state.config
    asked = getattr(state.train, "asked", "")
    return {
        "model": model_fact(config.model_name),
        "tokenizer": config.model_name,
        "renderer": config.renderer_name,
        "groups": f"{len(state.train.get_batch(0)):,} per step, {len(state.test):,} held out",
        **({"asked": asked} if asked else {}),
        "rollouts": rollouts,
        "context": context_fact(state.context_tokens),
        "loss": loss,
        "steps": f"{state.total_steps:,} in all, {state.steps_per_epoch:,} per epoch",
        "adapter": adapter_size(config),
    }
