"""State of a run over preferences, passed from stage to stage, and what it says of itself."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cookhouse import algorithms as alg
from cookhouse.losses.pair_losses import PAIR_LOSSES
from cookhouse.runs import Figure, Preview, RunResult
from cookhouse.settings import PreferenceSettings
from cookhouse.telemetry import keys, read_metrics
from cookhouse.workflows.preference.evaluation import PairAnswerEvaluation
from cookhouse.workflows.preference.rows import PreferenceData
from cookhouse.workflows.preference.stream import StreamedPairs

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


@dataclass(frozen=True, kw_only=True)
class TokenizedPairs:
    """Pairs as tokens: batches to train on, and those held out."""

    dataset: alg.PairDataset | StreamedPairs
    counts: alg.Counts
    """Of the answers of all pairs."""
    held_out: Sequence[alg.Pair]
    """Empty: nothing is evaluated."""
    answers: PairAnswerEvaluation | None
    """Evaluation of answers to the prompts of held-out pairs; None where none can be asked."""
    context_tokens: int | None
    """Context length of the model, prompt and answer together, in tokens; None if it is not known here."""


@dataclass(kw_only=True)
class PreferenceState(alg.TrainingState):
    """State that the stages of a run over preferences share."""

    config: PreferenceSettings
    data: PreferenceData = field(init=False)
    pairs: TokenizedPairs = field(init=False)
    objective: alg.Objective[alg.PairPayload] = field(init=False)
    reference: alg.Reference = field(init=False)
    dpo_metrics: dict[str, float] = field(default_factory=dict)
    """Of the last step: `dpo_loss`, `accuracy`, `margin`, `chosen_reward`, `rejected_reward` and so on."""

    def data_facts(self) -> Mapping[str, str]:
        """Pairs, tokens, the loss and the reference."""
        config, counts, pairs = self.config, self.pairs.counts, self.pairs.dataset.pairs
        counted = counts.statistics
        num_cut = sum(any(each.num_cut_tokens for each in pair.examples) for pair in pairs)
        num_pairs, about, held_out = counted.num_examples // 2, "", f"; {len(self.pairs.held_out):,} held out"
        if counts.num_sampled is not None:
            num_cut, about = num_cut * num_pairs // len(pairs), "about "
            held_out += f" (estimated from {counts.num_sampled:,} of {counts.num_rows:,} rows)"
        needs_reference = PAIR_LOSSES.find(config.pair_loss).needs_reference
        return {
            "pairs": f"{about}{num_pairs:,} to train on, of which {num_cut:,} lose an end{held_out}",
            "tokens": f"{about}{counted.num_tokens:,}, prompts twice, of which {counted.num_trained_tokens:,} "
            f"({counted.trained_share:.1%}) are trained on",
            "context": alg.context_fact(self.pairs.context_tokens),
            "longest answer": f"{max(pair.longest_tokens for pair in pairs):,} tokens with its prompt",
            "loss": f"{config.pair_loss}, β {config.dpo_beta:g}",
            "held-out answers": self._comparison,
            "reference": alg.reference_in_words(config, config.reference_model)
            if needs_reference
            else f"none: {config.pair_loss} needs no reference",
        }

    @property
    def _comparison(self) -> str:
        if self.pairs.answers is None:
            return "none"
        if self.config.preference_model is None:
            return "compared with the chosen and the rejected one letter by letter"
        return f"compared with the chosen ones, and those before training, by {self.config.preference_model}"

    def previews(self) -> Sequence[Preview]:
        """The first pair, chosen and rejected."""
        return alg.previews_of(self.pairs.dataset.pairs[0].examples, self.config.model_name)

    def figures(self, first: alg.Row, last: alg.Row, after: alg.Row) -> Sequence[Figure]:
        """Accuracy, margin and loss of held-out pairs, which of the two is answered, and the training loss."""
        return [
            *alg.held_out_figures(_HELD_OUT, first, after),
            alg.trained_figure(keys.PAIR_LOSS, "training loss", first, last),
        ]

    def result(self, seconds: float) -> RunResult[Any]:
        rows = read_metrics(self.opened.folder.metrics)  # also where this launch took no step
        last: alg.Row = next((row for row in reversed(rows) if keys.PAIR_LOSS in row), {})
        self.dpo_metrics = {
            name.removeprefix("train/"): value for name, value in last.items() if name.startswith("train/")
        }
        return super().result(seconds)
