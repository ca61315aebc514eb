"""State of a run over preferences, passed from stage to stage."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from cookhouse.algorithms.base.counts import Counts, expected_training
from cookhouse.algorithms.base.run import TrainingState
from cookhouse.algorithms.base.spending import ExpectedTokens
from cookhouse.algorithms.pairs.assembler import PairPayload
from cookhouse.algorithms.pairs.dataset import Pair, PairDataset
from cookhouse.algorithms.pairs.reference import Reference
from cookhouse.losses.pair_losses import PairLoss
from cookhouse.settings import PreferenceSettings
from cookhouse.training import Objective
from cookhouse.workflows.preference.evaluation import AnswerJudge, PairAnswerEvaluation
from cookhouse.workflows.preference.rows import PreferenceData
from cookhouse.workflows.preference.stream import StreamedPairs


@dataclass(kw_only=True)
class PreferenceState(TrainingState):
    """State that the stages of a run over preferences share."""

    config: PreferenceSettings
    loss: PairLoss = field(init=False)
    objective: Objective[PairPayload] = field(init=False)
    data: PreferenceData = field(init=False)
    dataset: PairDataset | StreamedPairs = field(init=False)
    counts: Counts = field(init=False)
    """Of the answers of all pairs."""
    held_out: Sequence[Pair] = field(init=False)
    """Empty: nothing is evaluated."""
    answers: PairAnswerEvaluation | None = field(init=False)
    judge: AnswerJudge | None = field(init=False)
    """None: answers are compared as texts."""
    reference: Reference = field(init=False)
    dpo_metrics: dict[str, float] = field(default_factory=dict)
    """Of the last step: `dpo_loss`, `accuracy`, `margin`, `chosen_reward`, `rejected_reward` and so on."""

    @property
    def expected_tokens(self) -> ExpectedTokens:
        expected = expected_training([(self.dataset, self.counts)], self.total_steps, self.steps_per_epoch)
        return (
            replace(expected, on_top="as many that a reference scores; evaluations")
            if self.loss.needs_reference
            else expected
        )
