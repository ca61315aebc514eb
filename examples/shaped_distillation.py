"""Distillation with the teacher's logprobs shaped token by token: the skewed reverse divergence of DistiLLM
(https://arxiv.org/abs/2402.03898).

    cookhouse run examples/shaped_distillation.py:RECIPE max_steps=20

With q the student's probability of a token, p the teacher's and m = (1 − α)p + αq, the student minimizes KL(q ‖ m). Its
policy gradient has the advantage log(m/q) + α(q/m − 1), where q/m is at most 1/α: a token that the teacher would never
say costs no more than log α + 1 − α.
"""

from functools import partial

import chz
import numpy as np
from numpy.typing import NDArray

from cookhouse import InputError, Recipe
from cookhouse.recipes import NamedEnvironmentSettings, named_environments, plain_renderer
from cookhouse.settings import OnPolicyDistillationSettings
from cookhouse.workflows import OnPolicyState, Workflow, on_policy_workflow


@chz.chz
class Config(NamedEnvironmentSettings, OnPolicyDistillationSettings):
    """Settings of environments and of a teacher, and one more."""

    skew: float = chz.field(default=0.1, doc="Share α of the student in what it is compared with, between 0 and 1.")
    env: str = "arithmetic"
    teacher_model: str | None = "cookhouse/tiny-arithmetic"
    renderer_name: str = plain_renderer()
    batch_size: int = 32
    group_size: int = 4
    max_tokens: int = 8
    learning_rate: float = 2e-3

    @chz.validate
    def _skew_is_a_share(self) -> None:
        if not 0 < self.skew < 1:
            raise InputError(f"skew={self.skew} must be between 0 and 1, without these")


def skewed(student_S: NDArray[np.float64], teacher_S: NDArray[np.float64], skew: float) -> NDArray[np.float64]:
    """Advantages of the S sampled tokens of a datum, (S,), from their logprobs in nats, (S,)."""
    log_m_over_q_S = np.logaddexp(np.log1p(-skew) + teacher_S - student_S, np.log(skew))
    advantages_S: NDArray[np.float64] = log_m_over_q_S + skew * np.expm1(-log_m_over_q_S)
    return advantages_S


def workflow(config: Config) -> Workflow[OnPolicyState]:
    return on_policy_workflow(
        config, partial(named_environments, config), teacher_term=partial(skewed, skew=config.skew)
    )


RECIPE = Recipe(name="skewed", description="Distillation, skewed by token.", config_class=Config, workflow=workflow)
