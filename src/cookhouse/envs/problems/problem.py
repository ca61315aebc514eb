"""Problems of one turn: a question, one answer, and a reward for it."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import tinker

from cookhouse.chat import Termination, text_of
from cookhouse.envs.prompting import Prompting
from cookhouse.rl import Env, Metrics, StepResult, StopCondition, Trajectory

FORMAT_COEF = 0.1


class ProblemEnv(ABC):
    """Asks once and rewards the answer with format_coef · (format − 1) + correct.

    `format` is 1 for an answer that ended by itself and is well formed, else 0. A kind of problem overrides the four
    methods below; none of them may raise because of what the model wrote.
    """

    def __init__(self, prompting: Prompting, *, format_coef: float = FORMAT_COEF) -> None:
        self.prompting = prompting
        self.format_coef = format_coef

    # ------------------------------------------------------------------ for kinds of problems to say

    @abstractmethod
    def get_question(self) -> str:
        """Question to the model."""

    @abstractmethod
    def get_expected(self) -> str:
        """A right answer, for people who read the transcript."""

    @abstractmethod
    def check_format(self, answer: str) -> bool:
        """True if an answer can be graded at all."""

    @abstractmethod
    async def check_answer(self, answer: str) -> float:
        """Grade of an answer, from 0 to 1."""

    # ------------------------------------------------------------------ the mechanism

    async def initial_observation(self) -> tuple[tinker.ModelInput, StopCondition]:
        renderer = self.prompting.renderer
        prompt = renderer.build_generation_prompt(self.prompting.ask(self.get_question()))
        return prompt, renderer.get_stop_sequences()

    async def step(self, action: Sequence[int]) -> StepResult:
        renderer = self.prompting.renderer
        message, termination = renderer.parse_response(action)
        answer = text_of(message)
        is_well_formed = termination != Termination.MALFORMED and self.check_format(answer)
        correct = await self.check_answer(answer)
        return StepResult(
            reward=self.format_coef * (float(is_well_formed) - 1.0) + correct,
            episode_done=True,
            next_observation=tinker.ModelInput.empty(),
            next_stop_condition=renderer.get_stop_sequences(),
            metrics={"format": float(is_well_formed), "correct": correct},
            logs={"question": self.get_question(), "answer": answer, "expected": self.get_expected()},
        )


def no_group_rewards(count: int) -> list[tuple[float, Metrics]]:
    """For groups whose members are rewarded one by one."""
    return [(0.0, {}) for _ in range(count)]


@dataclass(frozen=True, kw_only=True)
class EnvFactoryGroupBuilder:
    """A group of `group_size` environments that one factory makes. Picklable if the factory is."""

    make_env: Callable[[], Env]
    group_size: int
    tags: Sequence[str] = ()

    async def make_envs(self) -> Sequence[Env]:
        return [self.make_env() for _ in range(self.group_size)]

    async def compute_group_rewards(
        self,
        trajectories_G: Sequence[Trajectory],
        envs_G: Sequence[Env],  # noqa: ARG002
    ) -> Sequence[tuple[float, Mapping[str, float]]]:
        return no_group_rewards(len(trajectories_G))

    def logging_tags(self) -> Sequence[str]:
        return list(self.tags)


@dataclass(frozen=True, kw_only=True)
class ProblemGroupBuilder(EnvFactoryGroupBuilder):
    """A group that answers one problem."""

    make_env: Callable[[], ProblemEnv]
