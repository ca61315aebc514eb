"""Summary of a run over preferences: what it would do, and what came of it."""

from collections.abc import Mapping

from cookhouse.runs import Figure, RunResult
from cookhouse.telemetry import keys, read_metrics
from cookhouse.workflows.base.reference_place import reference_in_words
from cookhouse.workflows.base.summary import adapter_size, context_fact, model_fact, training_result
from cookhouse.workflows.preference.state import PreferenceState

Row = Mapping[str, float]

_HELD_OUT = (
    (keys.TEST_PAIR_ACCURACY, "held-out pairs in the right order", True),
    (keys.TEST_PAIR_MARGIN, "held-out margin (chosen less rejected reward)", False),
    (keys.TEST_PAIR_LOSS, "held-out loss of a pair", False),
    (keys.TEST_ANSWERED_CHOSEN, "answers that are the chosen one", True),
    (keys.TEST_ANSWERED_REJECTED, "answers that are the rejected one", True),
    (keys.TEST_ANSWER_WIN_RATE, "of these two, answers that are the chosen one", True),
    (keys.TEST_WIN_RATE_CHOSEN, "answers' win rate against the chosen ones, as judged", True),
    (keys.TEST_WIN_RATE_INITIAL, "and against the answers before training", True),
)


def figures(first: Row, last: Row, after: Row) -> tuple[Figure, ...]:
    """Accuracy, margin and loss of held-out pairs, which of the two is answered, and the last training loss."""
    held_out = (
        Figure(name=name, label=label, before=first.get(name), after=after.get(name), is_share=is_share)
        for name, label, is_share in _HELD_OUT
    )
    trained = Figure(
        name=keys.PAIR_LOSS,
        label="training loss, first and last step",
        before=first.get(keys.PAIR_LOSS),
        after=last.get(keys.PAIR_LOSS),
    )
    return (*held_out, trained)


def preference_result(state: PreferenceState, seconds: float) -> RunResult[PreferenceState]:
    """The result, whose state has the last step's `dpo_metrics`, also where this launch took no step."""
    rows = read_metrics(state.folder.metrics)
    last: Row = next((row for row in reversed(rows) if keys.PAIR_LOSS in row), {})
    state.dpo_metrics = {
        name.removeprefix("train/"): value for name, value in last.items() if name.startswith("train/")
    }
    return training_result(figures, state, seconds)


def facts(state: PreferenceState) -> dict[str, str]:
    """Facts of a plan: pairs, tokens, the loss, the reference, steps, and the adapter."""
    config, pairs, counted = state.config, state.dataset.pairs, state.counts.statistics
    num_cut = sum(any(each.num_cut_tokens for each in pair.examples) for pair in pairs)
    num_pairs, about, held_out = counted.num_examples // 2, "", f"; {len(state.held_out):,} held out"
    if state.counts.num_sampled is not None:
        num_cut, about = num_cut * num_pairs // len(pairs), "about "
        held_out += f" (estimated from {state.counts.num_sampled:,} of {state.counts.num_rows:,} rows)"
    reference = reference_in_words(config, config.reference_model)
    return {
        "model": model_fact(config.model_name),
        "tokenizer": config.model_name,
        "renderer": config.renderer_name,
        "pairs": f"{about}{num_pairs:,} to train on, of which {num_cut:,} lose an end{held_out}",
        "tokens": f"{about}{counted.num_tokens:,}, prompts twice, of which {counted.num_trained_tokens:,} "
        f"({counted.trained_share:.1%}) are trained on",
        "context": context_fact(state.context_tokens),
        "longest answer": f"{max(pair.longest_tokens for pair in pairs):,} tokens with its prompt",
        "loss": f"{config.pair_loss}, β {config.dpo_beta:g}",
        "held-out answers": _comparison(state),
        "reference": reference if state.loss.needs_reference else f"none: {config.pair_loss} needs no reference",
        "steps": f"{state.total_steps:,} in all, {state.steps_per_epoch:,} per epoch",
        "adapter": adapter_size(config),
    }


def _comparison(state: PreferenceState) -> str:
    if state.answers is None:
        return "none"
    if state.config.preference_model is None:
        return "compared with the chosen and the rejected one letter by letter"
    return f"compared with the chosen ones, and those before training, by {state.config.preference_model}"
