"""Summary of a supervised run: what it would do, and what came of it."""

from collections.abc import Mapping

from cookhouse.errors import printable
from cookhouse.runs import Figure
from cookhouse.telemetry import keys
from cookhouse.workflows.base.summary import adapter_size, context_fact, model_fact
from cookhouse.workflows.supervised.state import SupervisedState

Row = Mapping[str, float]


def figures(first: Row, last: Row, after: Row) -> tuple[Figure, ...]:
    """Held-out loss and exact match, and the last training loss."""
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
        *(
            Figure(name=name, label=f"held-out {label}", before=first.get(name), after=after[name], is_share=True)
            for name, label in ((keys.TEST_ACCURACY, "accuracy"), (keys.TEST_F1, "F1"))
            if name in after
        ),
        Figure(
            name=keys.TRAIN_LOSS,
            label="training loss of the last step",
            before=None,
            after=last.get(keys.TRAIN_LOSS),
        ),
    )


def _held_out(state: SupervisedState) -> str:
    num_asked, num_all = len(state.test), state.data.num_held_out
    is_part = num_asked == state.config.num_eval < num_all
    return f"{num_all:,} held out, of which {num_asked:,} are evaluated on" if is_part else f"{num_asked:,} held out"


def facts(state: SupervisedState) -> dict[str, str]:
    """Facts of a plan: conversations, tokens, steps, and the adapter."""
    config, counts = state.config, state.counts
    found = counts.statistics
    read = state.train if counts.num_sampled is None else ()
    unread = sorted({str(name) for conversation in read for name in conversation.extra})
    about = "" if counts.num_sampled is None else "about "
    estimate = {} if counts.num_sampled is None else {"estimated from": f"{counts.num_sampled:,} rows"}
    return {
        "model": model_fact(config.model_name),
        "tokenizer": config.model_name,
        "renderer": config.renderer_name,
        "conversations": f"{len(state.train):,} to train on, {_held_out(state)}",
        **({"unused fields": printable(", ".join(unread))} if unread else {}),
        "examples": f"{about}{found.num_examples:,}, of which {found.num_truncated:,} are truncated",
        "tokens": f"{about}{found.num_tokens:,}, of which {found.num_trained_tokens:,} ({found.trained_share:.1%}) are "
        "trained on",
        **estimate,
        "context": context_fact(state.context_tokens),
        "longest example": f"{found.longest_tokens:,} tokens",
        "steps": f"{state.total_steps:,} in all, {state.steps_per_epoch:,} per epoch",
        "adapter": adapter_size(config),
    }
