"""Summary of a run that trains a preference model: what it would do, and what came of it."""

from collections import Counter
from collections.abc import Mapping

from cookhouse.chat import LABELS
from cookhouse.runs import Figure
from cookhouse.telemetry import keys
from cookhouse.workflows.base.summary import adapter_size, context_fact, model_fact
from cookhouse.workflows.preference_model.state import PreferenceModelState

Row = Mapping[str, float]

_HELD_OUT = (
    (keys.TEST_PAIR_ACCURACY, "held-out comparisons judged rightly", True),
    ("test/accuracy_low", "of which the 95% interval begins at", True),
    ("test/accuracy_high", "and ends at", True),
    (keys.TEST_NLL, "held-out loss (nats per label)", False),
    ("test/order_disagreement", "held-out comparisons whose orders disagree", True),
)


def figures(first: Row, last: Row, after: Row) -> tuple[Figure, ...]:
    """Held-out accuracy with its interval, loss and order disagreement, and the training loss."""
    held_out = (
        Figure(name=name, label=label, before=first.get(name), after=after.get(name), is_share=is_share)
        for name, label, is_share in _HELD_OUT
    )
    trained = Figure(
        name=keys.TRAIN_LOSS,
        label="training loss, first and last step",
        before=first.get(keys.TRAIN_LOSS),
        after=last.get(keys.TRAIN_LOSS),
    )
    return (*held_out, trained)


def facts(state: PreferenceModelState) -> dict[str, str]:
    """Facts of a plan: comparisons, tokens, labels, steps, and the adapter."""
    config, found = state.config, state.dataset.statistics
    labels = Counter(row.label for row in state.data.train)
    counts = ", ".join(f"{labels[label]:,} {label}" for label in LABELS if labels[label])
    return {
        "model": model_fact(config.model_name),
        "tokenizer": config.model_name,
        "renderer": config.renderer_name,
        "comparisons": f"{len(state.data.train):,} to train on ({counts}), {len(state.data.test):,} held out",
        "orders": "both of each comparison" if config.swap else "one of each comparison, drawn by the seed",
        "tokens": f"{found.num_tokens:,}, of which {found.num_trained_tokens:,} are labels",
        "context": context_fact(state.context_tokens),
        "longest example": f"{found.longest_tokens:,} tokens",
        "steps": f"{state.total_steps:,} in all, {state.steps_per_epoch:,} per epoch",
        "adapter": adapter_size(config),
    }
