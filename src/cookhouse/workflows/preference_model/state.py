"""State of a run of a preference model, passed from stage to stage."""

from dataclasses import dataclass, field

from cookhouse.algorithms.base.counts import Counts, expected_training
from cookhouse.algorithms.base.rows import SplitRows
from cookhouse.algorithms.base.run import TrainingState
from cookhouse.algorithms.base.spending import ExpectedTokens
from cookhouse.chat import ComparisonRenderer
from cookhouse.data import (
    ComparisonRow,
    SupervisedDataset,
)
from cookhouse.settings import PreferenceModelSettings


@dataclass(kw_only=True)
class PreferenceModelState(TrainingState):
    """State that the stages of a run that trains a preference model share."""

    config: PreferenceModelSettings
    data: SplitRows[ComparisonRow] = field(init=False)
    comparisons: ComparisonRenderer = field(init=False)
    """Over that renderer."""
    dataset: SupervisedDataset = field(init=False)

    @property
    def expected_tokens(self) -> ExpectedTokens:
        counts = Counts(statistics=self.dataset.statistics, num_rows=len(self.dataset.examples))
        return expected_training([(self.dataset, counts)], self.total_steps, self.steps_per_epoch)
