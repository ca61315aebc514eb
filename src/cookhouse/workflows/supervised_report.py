"""What a supervised run hands back, and what a dry run of one finds."""

from cookhouse.printable import printable
from cookhouse.telemetry import keys
from cookhouse.workflows.result import DryRunReport, Figure, RunResult
from cookhouse.workflows.run_result import Row, adapter_size, context_fact, prepared, run_result
from cookhouse.workflows.supervised import (
    SupervisedPlan,
    SupervisedState,
    build_supervised_dataset,
    init_tokenizer,
    load_dataset,
    max_length,
    preview,
)


def supervised_result(state: SupervisedState, *, num_samples: int, seconds: float) -> RunResult:
    """The result of a run that ended well or was interrupted."""
    return run_result(state, _figures, num_samples=num_samples, seconds=seconds)


def _figures(first: Row, last: Row, after: Row) -> tuple[Figure, ...]:
    return (
        Figure(
            name=keys.TEST_NLL,
            label="held-out loss (nats per token)",
            before=first.get(keys.TEST_NLL),
            after=after.get(keys.TEST_NLL),
        ),
        Figure(
            name=keys.TEST_EXACT_MATCH,
            label="held-out exact match",
            before=first.get(keys.TEST_EXACT_MATCH),
            after=after.get(keys.TEST_EXACT_MATCH),
            is_share=True,
        ),
        Figure(
            name=keys.TRAIN_LOSS,
            label="training loss of the last step",
            before=None,
            after=last.get(keys.TRAIN_LOSS),
        ),
    )


def dry_run_supervised(plan: SupervisedPlan) -> DryRunReport:
    """Run the stages that need no service, and report what they found.

    Raises:
        InputError: a run would be refused for the same reason.
    """
    state = prepared(SupervisedState, plan, (load_dataset, init_tokenizer, build_supervised_dataset))
    return DryRunReport(
        recipe=plan.folder.recipe,
        config=plan.folder.config,
        folder=plan.folder.path,
        facts=_facts(state),
        notes=state.notes,
        previews=preview(state),
    )


def _facts(state: SupervisedState) -> dict[str, str]:
    plan, found = state.plan, state.dataset.statistics
    unread = sorted({str(name) for conversation in state.train for name in conversation.extra})
    share = found.num_trained_tokens / found.num_tokens if found.num_tokens else 0.0
    return {
        "tokenizer": plan.model_name,
        "renderer": plan.renderer_name,
        "conversations": f"{len(state.train):,} to train on, {len(state.test):,} held out",
        **({"fields not read": printable(", ".join(unread))} if unread else {}),
        "examples": f"{found.num_examples:,}, of which {found.num_truncated:,} are cut to {max_length(state):,} tokens",
        "tokens": f"{found.num_tokens:,}, of which {found.num_trained_tokens:,} ({share:.1%}) are trained on",
        "context": context_fact(state.context_tokens),
        "longest example": f"{found.longest_tokens:,} tokens",
        "steps": f"{state.total_steps:,} in all, {len(state.dataset):,} per epoch",
        "adapter": adapter_size(plan),
    }
