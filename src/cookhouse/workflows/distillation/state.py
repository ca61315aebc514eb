"""State of a distillation run, passed from stage to stage."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod

from cookhouse.algorithms.base.run import TrainingState
from cookhouse.algorithms.base.spending import ExpectedTokens, in_steps
from cookhouse.chat import Renderer
from cookhouse.data.batches.counting import count_items
from cookhouse.sampling_client import SamplingClient
from cookhouse.settings import OffPolicyDistillationSettings, OnPolicyDistillationSettings
from cookhouse.training import Objective
from cookhouse.workflows.distillation.assembler import QuestionDataset
from cookhouse.workflows.distillation.evaluation import TeacherRecord
from cookhouse.workflows.distillation.questions import QuestionRows, TeacherPrompt
from cookhouse.workflows.distillation.samples import AnswerExtractor, TeacherQuestion
from cookhouse.workflows.distillation.teacher_service import TeacherService
from cookhouse.workflows.distillation.teachers import Teachers
from cookhouse.workflows.reinforcement.state import ReinforcementState


@dataclass(kw_only=True)
class OffPolicyState(TrainingState):
    """State that the stages of a run that learns a teacher's answers share."""

    config: OffPolicyDistillationSettings
    bundled: str
    """Folder of the bundled rows."""
    teacher_prompt: TeacherPrompt | None = field(init=False)
    rows: QuestionRows = field(init=False)
    teacher_renderer: Renderer = field(init=False)
    reader: AnswerExtractor = field(init=False)
    dataset: QuestionDataset = field(init=False)
    held_out: Sequence[TeacherQuestion] = field(init=False)
    """Asked in evaluations; empty: nothing is evaluated."""
    teacher_service: TeacherService = field(init=False)
    teacher: SamplingClient | None = None
    teacher_results: TeacherRecord = field(default_factory=TeacherRecord)
    """What the teacher answers to the held-out prompts."""
    objective: Objective[None] = field(init=False)
    distillation_metrics: dict[str, float] = field(default_factory=dict)
    """Of the last step: `loss`, `forward_kl`, and how many of the teacher's answers were dropped."""

    @property
    def expected_tokens(self) -> ExpectedTokens:
        config = self.config
        num_prompts = count_items(
            len(self.dataset.questions),
            batch_size=config.batch_size,
            total_steps=self.total_steps,
            steps_per_epoch=self.steps_per_epoch,
        )
        sizes = [num_prompts, config.samples_per_prompt, config.max_tokens]
        count = in_steps(num_prompts, self.total_steps, config.batch_size)
        said = f"{count} prompts × {config.samples_per_prompt:,} answers × {config.max_tokens:,} tokens"
        return ExpectedTokens(
            tokens={"sampled_tokens": prod(sizes)},
            degree="at most",
            remark=f"{said}, by the teacher",
            on_top="prompts, and training on these with what was sampled; evaluations",
        )

    @property
    def teacher_name(self) -> str:
        """The weights that teach: those that the run begins with where nobody else is named."""
        return self.config.teacher_model or self.config.load_checkpoint_path or self.config.model_name

    @property
    def is_verbatim(self) -> bool:
        """True if the student learns the very tokens that were sampled."""
        return self.config.teacher_renderer is None and self.config.answer_pattern is None


@dataclass(frozen=True, kw_only=True)
class NamedTeacher:
    """A teacher of the settings, before it is opened."""

    name: str
    coef: float
    tag: str | None
    """Of the groups that it teaches; None: of all."""


@dataclass(kw_only=True)
class OnPolicyState(ReinforcementState):
    """State that the stages of on-policy distillation share."""

    config: OnPolicyDistillationSettings
    environment_names: Sequence[str]
    named: list[NamedTeacher] = field(init=False)
    teacher_service: TeacherService = field(init=False)
    teachers: Teachers = field(init=False)
    teacher_results: TeacherRecord = field(default_factory=TeacherRecord)
    """What the teachers themselves answer to the held-out problems."""
    distillation_metrics: dict[str, float] = field(default_factory=dict)
    """Of the last step: `teacher_kl`, also by data set and by position."""

    @property
    def scores_sequences(self) -> bool:
        """A teacher always is."""
        return True
