"""What a reinforcement run hands back, and what a dry run of one finds."""

from cookhouse.telemetry import keys
from cookhouse.workflows.reinforcement import ReinforcementPlan, ReinforcementState, build_env_group, init_tokenizer
from cookhouse.workflows.result import DryRunReport, Figure, RunResult
from cookhouse.workflows.run_result import Row, adapter_size, context_fact, prepared, run_result

_FIGURES = (
    ("env/all/reward/total", "mean reward", False),
    ("env/all/correct", "answered correctly", True),
    ("env/all/ac_tokens_per_turn", "tokens sampled per turn", False),
)


def reinforcement_result(state: ReinforcementState, *, num_samples: int, seconds: float) -> RunResult:
    """The result of a run that ended well or was interrupted; figures from before a resume come from the run folder."""
    return run_result(state, _figures, num_samples=num_samples, seconds=seconds)


def _figures(first: Row, last: Row, after: Row) -> list[Figure]:
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
    return [*held_out, trained]


def dry_run_reinforcement(plan: ReinforcementPlan) -> DryRunReport:
    """Run the stages that need no service, and report what they found.

    Raises:
        InputError: a run would be refused for the same reason.
    """
    state = prepared(ReinforcementState, plan, (init_tokenizer, build_env_group))
    num_groups = len(state.train.get_batch(0))
    lag = f"up to {plan.max_lag} steps old" if plan.max_lag else "of the present weights"
    return DryRunReport(
        recipe=plan.folder.recipe,
        config=plan.folder.config,
        folder=plan.folder.path,
        notes=state.notes,
        facts={
            "tokenizer": plan.model_name,
            "renderer": plan.renderer_name,
            "groups": f"{num_groups:,} per step, {len(state.test):,} held out",
            "context": context_fact(state.context_tokens),
            "rollouts": lag,
            "loss": plan.loss.loss_fn,
            "steps": f"{state.total_steps:,} in all, {len(state.train):,} per epoch",
            "adapter": adapter_size(plan),
        },
    )
