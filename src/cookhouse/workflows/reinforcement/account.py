"""What a reinforcement run tells a person: what it would do, and what came of it."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from cookhouse.runs import Figure
from cookhouse.telemetry import keys
from cookhouse.workflows.training_run.account import adapter_size, context_fact, model_fact

if TYPE_CHECKING:
    from cookhouse.workflows.reinforcement.workflow import ReinforcementState

Row = Mapping[str, float]

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


def facts(state: "ReinforcementState") -> dict[str, str]:
    """What would be trained: groups, steps, the loss, and the adapter."""
    config = state.config
    lag = config.max_steps_off_policy
    return {
        "model": model_fact(config.model_name),
        "tokenizer": config.model_name,
        "renderer": config.renderer_name,
        "groups": f"{len(state.train.get_batch(0)):,} per step, {len(state.test):,} held out",
        "rollouts": f"up to {lag} steps old" if lag else "of the present weights",
        "context": context_fact(state.context_tokens),
        "loss": config.loss_fn,
        "steps": f"{state.total_steps:,} in all, {state.steps_per_epoch:,} per epoch",
        "adapter": adapter_size(config),
    }
