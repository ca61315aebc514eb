"""State of a supervised run, passed from stage to stage, and what it says of itself."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import tinker

from cookhouse import algorithms as alg
from cookhouse.data import Example, MixedDataset, StreamedBatch, StreamedDataset, SupervisedDataset
from cookhouse.errors import printable
from cookhouse.evals import ExactMatchEvaluator, NLLEvaluator
from cookhouse.runs import Figure, Preview
from cookhouse.settings import SupervisedSettings
from cookhouse.telemetry import keys
from cookhouse.workflows.supervised.rows import RunData

Part: TypeAlias = SupervisedDataset | StreamedDataset


Batch: TypeAlias = Sequence[tinker.Datum] | StreamedBatch


Dataset: TypeAlias = Part | MixedDataset[Batch]


@dataclass(frozen=True, kw_only=True)
class Tokenized:
    """Conversations as tokens: batches to train on, and what measures the weights on those held out."""

    dataset: Dataset
    counts: alg.Counts
    shown: Sequence[Example]
    """First examples, for people."""
    nll: NLLEvaluator | None
    """None: nothing is evaluated."""
    exact_match: ExactMatchEvaluator | None
    context_tokens: int | None
    """Context length of the model, prompt and answer together, in tokens; None if it is not known here."""


@dataclass(kw_only=True)
class SupervisedState(alg.TrainingState):
    """State that the stages of a supervised run share."""

    config: SupervisedSettings
    data: RunData = field(init=False)
    """Data to train on and to measure by; a stage may return other conversations."""
    objective: alg.Objective[None] = field(init=False)
    tokenized: Tokenized = field(init=False)

    def data_facts(self) -> Mapping[str, str]:
        counts = self.tokenized.counts
        found = counts.statistics
        read = self.data.conversations if counts.num_sampled is None else ()
        unread = sorted({str(name) for conversation in read for name in conversation.extra})
        about = "" if counts.num_sampled is None else "about "
        estimate = {} if counts.num_sampled is None else {"estimated from": f"{counts.num_sampled:,} rows"}
        return {
            "conversations": f"{len(self.data.conversations):,} to train on, {_held_out_in_words(self)}",
            **({"unused fields": printable(", ".join(unread))} if unread else {}),
            "examples": f"{about}{found.num_examples:,}, of which {found.num_truncated:,} are truncated",
            "tokens": f"{about}{found.num_tokens:,}, of which {found.num_trained_tokens:,} ({found.trained_share:.1%}) "
            "are trained on",
            **estimate,
            "context": alg.context_fact(self.tokenized.context_tokens),
            "longest example": f"{found.longest_tokens:,} tokens",
        }

    def previews(self) -> Sequence[Preview]:
        return alg.previews_of(self.tokenized.shown, self.config.model_name)

    def figures(self, first: alg.Row, last: alg.Row, after: alg.Row) -> Sequence[Figure]:
        return [
            *alg.held_out_figures(
                [
                    (keys.TEST_NLL, "held-out loss (nats per token)", False),
                    (keys.TEST_EXACT_MATCH, "held-out exact match", True),
                    *(each for each in _OF_LABELS if each[0] in after),
                    *([_TRUNCATED] if after.get(keys.TEST_TRUNCATED) else []),
                ],
                first,
                after,
            ),
            Figure(
                name=keys.TRAIN_LOSS,
                label="training loss of the last step",
                before=None,
                after=last.get(keys.TRAIN_LOSS),
            ),
        ]


_TRUNCATED = (keys.TEST_TRUNCATED, "held-out answers truncated (eval_max_tokens)", True)
_OF_LABELS = ((keys.TEST_ACCURACY, "held-out accuracy", True), (keys.TEST_F1, "held-out F1", True))


def _held_out_in_words(state: SupervisedState) -> str:
    num_measured, num_all = len(state.data.test), state.data.num_held_out
    if num_measured == num_all:
        return f"{num_all:,} held out"
    left = num_all - num_measured
    what = "not measured" if state.config.eval_fraction is None else "neither measured nor trained on"
    return f"{num_all:,} held out, of which {num_measured:,} are measured and {left:,} {what}"
