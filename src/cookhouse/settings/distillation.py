"""Settings of runs that learn from a teacher."""

from typing import Literal

import chz

from cookhouse.errors import InputError
from cookhouse.naming import names_in
from cookhouse.settings.checks import above, at_least, between
from cookhouse.settings.defaults import redefault
from cookhouse.settings.facts import Alias, NamesWeights, facts
from cookhouse.settings.reading import read_if
from cookhouse.settings.reinforcement import ReinforcementSettings
from cookhouse.settings.rows import RowSettings
from cookhouse.settings.training import TrainingSettings


@chz.chz
class TeacherSettings:
    """Settings of the teacher and its service."""

    help_title = "Teacher"

    teacher_model: str | None = chz.field(
        default=None,
        doc="Teacher: a base model or trained weights. Weights as in load_checkpoint_path; several separated "
        "by commas, one for each environment or data set; default with teacher_prompt: the weights that "
        "the run begins with.",
        metadata=facts(
            weights=NamesWeights(several=True, port="teacher", address="teacher_base_url"),
            aliases=(Alias(name="teacher_checkpoint", doc="tinker-cookbook"),),
        ),
    )
    teacher_base_url: str | None = chz.field(
        default=None,
        doc="Address of the service that has the teacher, its key in TEACHER_API_KEY; default: the run's own.",
        validator=read_if(lambda config: config.teacher_model is not None, "with teacher_model"),
        metadata=facts(free_on_resume=True),
    )


@chz.chz
class TeacherLossSettings:
    """Settings by which a teacher's logprobs become advantages."""

    help_title = "Teacher"

    teacher_coefs: str = chz.field(
        default="",
        doc="How much each teacher counts, separated by commas; default: 1 each.",
        metadata=facts(is_list=True),
    )
    teacher_kl_coef: float = chz.field(
        default=1.0,
        doc="How much the divergence from the teacher counts.",
        validator=above(0, "1"),
        metadata=facts(aliases=(Alias(name="kl_penalty_coef", doc="tinker-cookbook, of a teacher", over="kl_coef"),)),
    )
    teacher_kl_gamma: float = chz.field(
        default=0.0,
        doc="Discount of later tokens' divergence; 0: each token has its own.",
        validator=between(0, 1),
        metadata=facts(
            aliases=(Alias(name="kl_discount_factor", doc="tinker-cookbook, of a teacher", over="kl_gamma"),)
        ),
    )


@chz.chz
class OnPolicyDistillationSettings(ReinforcementSettings, TeacherSettings, TeacherLossSettings):
    """Settings of a run whose student samples and whose teachers say how likely that was."""

    help_title = "Teacher"

    advantage: str = redefault(ReinforcementSettings, "advantage", "none")
    eval_teacher: bool = chz.field(
        default=True,
        doc="Let the teacher answer the held-out problems, too.",
        validator=read_if(lambda config: config.num_eval, "with num_eval above 0", idle=[False]),
    )

    @property
    def scores_sequences(self) -> bool:
        """A teacher is asked for them."""
        return True


@chz.chz
class TeacherSamplingSettings:
    """Settings by which a teacher's answers are drawn, and chosen for training."""

    help_title = "Teacher"

    teacher_prompt: str | None = chz.field(
        default=None,
        doc="What the teacher is told and the student is not: a text, or @FILE; with {text} it takes the place of the "
        "last question, which stands there; else it is the system message.",
    )
    teacher_renderer: str | None = chz.field(
        default=None, doc="The teacher's chat format where that may be another; default: the student's."
    )
    teacher_samples: Literal["cached", "fresh"] = chz.field(
        default="cached",
        doc="cached: what the teacher said is saved in the run directory for every epoch; fresh: it is asked anew.",
    )
    samples_per_prompt: int = chz.field(
        default=1, doc="Answers of the teacher to each prompt, in one step.", validator=at_least(1)
    )
    max_tokens: int = chz.field(default=256, doc="Tokens per answer of the teacher, at most.", validator=at_least(1))
    temperature: float = chz.field(
        default=1.0, doc="Sampling temperature of the teacher; 0: greedy.", validator=at_least(0)
    )
    answer_pattern: str | None = chz.field(
        default=None,
        doc="Regular expression whose first group, or whole, is the part of an answer to train on; answers without it "
        "are dropped; default: all of an answer.",
    )
    teacher_top_k: int = chz.field(
        default=0,
        doc="Learn the teacher's most likely tokens at each position, so many, and not the sampled one alone; 0: off.",
        validator=at_least(0),
    )


@chz.chz
class OffPolicyDistillationSettings(TrainingSettings, RowSettings, TeacherSettings, TeacherSamplingSettings):
    """Settings of a run that learns from what its teacher says."""

    help_title = "Teacher"

    batch_size: int = chz.field(default=128, doc="Prompts per step.", validator=at_least(1))

    @chz.validate
    def _targets_can_be_asked_for(self) -> None:
        if self.teacher_top_k and (self.teacher_prompt is not None or self.answer_pattern is not None):
            raise InputError(
                f"teacher_top_k={self.teacher_top_k} learns what the teacher finds likely after the student's prompt; "
                "leave out teacher_prompt and answer_pattern, or teacher_top_k"
            )
        if len(names_in(self.teacher_model or "")) > 1:
            raise InputError(f"teacher_model={self.teacher_model} names several teachers; this run has one")
