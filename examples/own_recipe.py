"""A recipe of one's own: supervised fine-tuning with a stage, an evaluator at its own cadence, and a sink.

    cookhouse run examples/own_recipe.py:BRIEF max_steps=20

It trains on short answers only, measures every five steps how long the model's answers to one question are, and writes
the loss of each step to a file of its own.
"""

from dataclasses import dataclass, field
from pathlib import Path

import chz
import tinker

from cookhouse import (
    Metric,
    MetricsRow,
    Recipe,
    Record,
    SamplingClientEvaluator,
    SupervisedSettings,
    Workflow,
    declare_metric,
    stage,
    supervised_workflow,
)
from cookhouse.algorithms import Cadence, EvaluatorRun, OpenedRun, RunContext, ScheduledEvaluation
from cookhouse.chat import Renderer, text_of
from cookhouse.evals import Metrics, SampleClient
from cookhouse.workflows import RunData, SupervisedState

ANSWER_TOKENS = declare_metric(Metric("answer_tokens", direction="less", label="tokens of an answer", chart=1))


@chz.chz
class BriefConfig(SupervisedSettings):
    """Settings of the recipe: those of supervised runs, and one more."""

    longest_answer: int = chz.field(default=40, doc="Characters of an answer that is trained on.")
    batch_size: int = 32
    learning_rate: float = 5e-3
    num_eval: int = 16


@dataclass(kw_only=True)
class BriefState(SupervisedState):
    """What the stages hand on besides."""

    config: BriefConfig
    num_left_out: int = field(init=False)


class LossFile:
    """A sink: the loss of each step, one per line."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("w", encoding="utf-8")

    def write(self, record: Record) -> None:
        if isinstance(record, MetricsRow) and "train/loss" in record.metrics:
            self._file.write(f"{record.step} {record.metrics['train/loss']}\n")

    def close(self) -> None:
        self._file.close()


class AnswerLength(SamplingClientEvaluator):
    """Tokens of greedy answers to one question."""

    def __init__(self, prompt: tinker.ModelInput, stop: list[str] | list[int]) -> None:
        self._prompt = prompt
        self._params = tinker.SamplingParams(max_tokens=32, temperature=0.0, stop=stop)

    async def __call__(self, client: SampleClient) -> Metrics:
        response = await client.sample(self._prompt, 1, self._params)
        return {ANSWER_TOKENS: float(len(response.sequences[0].tokens))}


@stage()
async def keep_brief(config: BriefConfig, data: RunData) -> tuple[RunData, int]:
    """Leave out conversations with a long answer."""
    brief = [each for each in data.conversations if len(text_of(each.messages[-1])) <= config.longest_answer]
    return data.with_conversations(brief), len(data.conversations) - len(brief)


@stage()
async def watch(
    context: RunContext,
    renderer: Renderer,
    opened: OpenedRun,
    evaluations: list[ScheduledEvaluation],
    num_left_out: int,
) -> None:
    """Add the evaluator and the sink, and say what was left out."""
    prompt = renderer.build_generation_prompt([{"role": "user", "content": "Name the opposite of fast."}])
    evaluation = EvaluatorRun(AnswerLength(prompt, renderer.get_stop_sequences()), context.telemetry)
    evaluations.append(ScheduledEvaluation(name="length", evaluation=evaluation, cadence=Cadence(every=5)))
    context.telemetry.add(LossFile(opened.folder.path / "losses.txt"))
    context.telemetry.event("brief.left_out", metrics={"conversations": num_left_out})


def workflow(config: BriefConfig) -> Workflow[BriefState]:
    """The stages of a supervised run, and two more."""
    base = supervised_workflow(config).with_state(BriefState)
    return base.inserted(keep_brief, after="load_dataset").inserted(watch, after="init_session")


BRIEF = Recipe(
    name="brief",
    description="Supervised fine-tuning on short answers.",
    config_class=BriefConfig,
    workflow=workflow,
)
