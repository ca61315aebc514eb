"""State of a supervised run, passed from stage to stage."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import tinker

from cookhouse.data import Conversation, Example, MixedDataset, StreamedDataset, SupervisedDataset
from cookhouse.data.batches.stream import StreamedBatch
from cookhouse.evals import ExactMatchEvaluator, NLLEvaluator
from cookhouse.settings import SupervisedSettings
from cookhouse.training import Objective
from cookhouse.workflows.base.counts import Counts, expected_training
from cookhouse.workflows.base.run import TrainingState
from cookhouse.workflows.base.spending import ExpectedTokens
from cookhouse.workflows.supervised.rows import RunData

Part: TypeAlias = SupervisedDataset | StreamedDataset


Batch: TypeAlias = Sequence[tinker.Datum] | StreamedBatch


Dataset: TypeAlias = Part | MixedDataset[Batch]


@dataclass(kw_only=True)
class SupervisedState(TrainingState):
    """State that the stages of a supervised run share."""

    config: SupervisedSettings
    data: RunData = field(init=False)
    """What the run reads; what it trains on and is measured by are the two below, which stages may change."""
    train: Sequence[Conversation] = field(init=False)
    test: Sequence[Conversation] = field(init=False)
    """Chosen for evaluation; empty: nothing is evaluated."""
    dataset: Dataset = field(init=False)
    counts: Counts = field(init=False)
    part_counts: Sequence[Counts] = field(init=False)
    """The same of each set that is mixed, else of the one."""
    shown: Sequence[Example] = field(init=False)
    """First examples, for people."""
    nll: NLLEvaluator | None = field(init=False)
    exact_match: ExactMatchEvaluator | None = field(init=False)
    objective: Objective[None] = field(init=False)

    @property
    def expected_tokens(self) -> ExpectedTokens:
        parts = self.dataset.parts if isinstance(self.dataset, MixedDataset) else [self.dataset]
        counted: Any = list(zip(parts, self.part_counts, strict=True))
        return expected_training(counted, self.total_steps, self.steps_per_epoch)
