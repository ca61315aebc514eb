"""State of a run over rollouts, whatever it learns from them, and what it says of itself."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from cookhouse.algorithms.base.facts import Row, context_fact, held_out_figures, trained_figure
from cookhouse.algorithms.base.state import TrainingState
from cookhouse.algorithms.rollouts.problems import Environments, Problems
from cookhouse.algorithms.rollouts.rollouts import OpenedRollouts
from cookhouse.runs import Figure
from cookhouse.settings import RolloutTrainingSettings
from cookhouse.telemetry import keys

_FIGURES = (
    ("test/env/all/reward/total", "held-out mean reward", False),
    ("test/env/all/correct", "held-out answered correctly", True),
    ("test/env/all/win_share", "held-out win share, by the preference model", True),
    ("test/env/all/rule", "held-out share that the rule finds good", True),
    ("test/env/all/agreement", "held-out share on which both agree", True),
    ("test/env/all/ac_tokens_per_turn", "held-out tokens sampled per turn", False),
)


@dataclass(kw_only=True)
class RolloutState(TrainingState):
    """State that the stages of a run over rollouts share."""

    config: RolloutTrainingSettings
    environments: Environments
    problems: Problems = field(init=False)
    rollouts: OpenedRollouts = field(init=False)

    def data_facts(self) -> Mapping[str, str]:
        problems = self.problems
        asked = getattr(problems.train, "asked", "")
        return {
            "groups": f"{len(problems.train.get_batch(0)):,} per step, {len(problems.test):,} held out",
            **({"asked": asked} if asked else {}),
            "rollouts": "of the present weights",
            "context": context_fact(problems.context_tokens),
        }

    def figures(self, first: Row, last: Row, after: Row) -> Sequence[Figure]:
        """Held-out reward, correctness, win share and length, and reward and divergence in training."""
        return [
            *held_out_figures(_FIGURES, first, after),
            trained_figure(keys.TRAIN_REWARD, "training reward", first, last),
            trained_figure(keys.REFERENCE_KL, "divergence from the reference (nats per token)", first, last),
        ]
