"""State of every run that trains, and the result that is read from it and its folder."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cookhouse.algorithms.base.evaluation import NamedEvaluator
from cookhouse.algorithms.base.facts import Row, adapter_size, model_fact, serving_fact
from cookhouse.algorithms.base.spending import ExpectedTokens, cost_text, expected_facts
from cookhouse.algorithms.stages.state import RunState
from cookhouse.chat import Renderer
from cookhouse.registry import ModelVersion
from cookhouse.report import RecordedAnswer, checkpoint_text, overoptimization_remark
from cookhouse.runs import AnswerSample, Figure, RunFolder, RunResult, RunSummary, read_findings, read_history
from cookhouse.runs.history.facts import usage_of
from cookhouse.runs.names import CONFIG_FILE, LOG_FILE, REPORT_FILE
from cookhouse.settings import TrainingSettings
from cookhouse.telemetry import keys, read_metrics
from cookhouse.training import AdamSchedule, BestWeights, LoopOutcome, Objective, ScheduledEvaluation, TrainingSession
from cookhouse.training.clients.metering import TokenMeter
from cookhouse.weights.checkpoints import CHECKPOINTS_FILE, Checkpoint, CheckpointFile, Cursor, named_by_run


@dataclass(frozen=True, kw_only=True)
class Steps:
    """Length of a run, and the learning rate of each step."""

    total_steps: int
    steps_per_epoch: int
    adam: AdamSchedule
    expected_tokens: ExpectedTokens | None = None
    """Tokens that the steps send and sample; None: they are unknown."""


@dataclass(frozen=True, kw_only=True)
class OpenedRun:
    """A run directory, and the session with the service."""

    folder: RunFolder
    cursor: Cursor
    """Place at which the run begins, or goes on."""
    session: TrainingSession
    best: BestWeights | None = None
    """Choice of the best weights, of a run that saves them."""
    meter: TokenMeter | None = None
    """Counts the tokens of the session, where the run does that itself."""

    @property
    def checkpoints(self) -> CheckpointFile:
        return self.folder.checkpoints


@dataclass(frozen=True, kw_only=True)
class SavedWeights:
    """Weights at the end of a run."""

    final: Checkpoint
    chosen: Checkpoint
    """The best one where the run saves that, else the final one: what the run's name means, and what is registered."""


@dataclass(kw_only=True)
class TrainingState(RunState):
    """State that the stages of a training run share."""

    config: TrainingSettings
    renderer: Renderer = field(init=False)
    objective: Objective[Any] = field(init=False)
    steps: Steps = field(init=False)
    evaluators: Sequence[NamedEvaluator] = field(init=False)
    """Evaluators that settings and adapters name."""
    opened: OpenedRun = field(init=False)
    evaluations: list[ScheduledEvaluation] = field(default_factory=list)
    """Measurements, and how often they are due; all of them also of the trained weights. A stage may add to them."""
    outcome: LoopOutcome = field(init=False)
    saved: SavedWeights = field(init=False)
    eval_results: dict[str, Any] = field(default_factory=dict)
    """Metrics of the trained weights on what was held out; text where an evaluator gave some."""
    registered_model: ModelVersion | None = None
    """Version that the trained weights were registered as."""

    def facts(self) -> Mapping[str, str]:
        config, steps = self.config, self.steps
        return {
            "model": model_fact(config.model_name),
            "tokenizer": config.model_name,
            "renderer": config.renderer_name,
            **self.data_facts(),
            "steps": f"{steps.total_steps:,} in all, {steps.steps_per_epoch:,} per epoch",
            "adapter": adapter_size(config),
            **serving_fact(config),
            **expected_facts(steps.expected_tokens, config.prices),
        }

    def data_facts(self) -> Mapping[str, str]:
        """Facts of a dry run on the data and the loss."""
        return {}

    def figures(self, first: Row, last: Row, after: Row) -> Sequence[Figure]:
        """Figures of the summary, from the metrics of the first step, of the last step, and of the trained weights;
        each may be empty.
        """
        del first, last, after
        return ()

    def result(self, seconds: float) -> RunResult[Any]:
        """The result of a run that ended or was interrupted; figures from before a resume come from its directory."""
        folder, outcome = self.opened.folder, self.outcome
        rows = read_metrics(folder.metrics)
        first = rows[0] if rows and rows[0]["step"] == 0 else {}
        last: Row = next((row for row in reversed(rows) if keys.LEARNING_RATE in row), {})
        saved = named_by_run(self.opened.checkpoints.read())
        history = read_history(folder.path)
        is_interrupted = self.context.status == "interrupted"
        findings = read_findings(folder.path, self.context.folder.config, history)
        report = folder.path / REPORT_FILE
        summary = RunSummary(
            recipe=self.context.recipe,
            model_name=self.config.model_name,
            folder=folder.path,
            is_interrupted=is_interrupted,
            is_paused=outcome.is_paused,
            num_steps=outcome.cursor.step,
            total_steps=self.steps.total_steps,
            seconds=seconds,
            figures=self.figures(first, last, self.eval_results),
            samples=_samples(self, self.config.num_samples),
            remark=overoptimization_remark(rows, findings),
            findings=findings,
            report=report if report.exists() else None,
            state_path=next((point.state_path for point in saved if point.state_path), None),
            sampler_path=next((point.sampler_path for point in saved if point.sampler_path), None),
            best=next((f"{point.name}: {checkpoint_text(point)}" for point in saved if point.best), None),
            stopped=_stopped(self),
            next_command=_next_command(self, is_interrupted),
            usage=history.usage,
            usage_text=None if history.usage is None else usage_of(history.usage, history),
            cost=None if history.usage is None else cost_text(history.usage, self.config.prices),
            registered_model=None if self.registered_model is None else self.registered_model.id,
        )
        metrics = self.context.telemetry.chosen({**outcome.metrics, **self.eval_results})
        self.eval_results = with_plain_names(self.eval_results)
        return RunResult(state=self, metrics=metrics, artifacts=_artifacts(folder, summary), summary=summary)


def _stopped(state: TrainingState) -> str | None:
    if state.outcome.is_paused:
        return f"paused: pause_at_step={state.config.pause_at_step}"
    if state.context.status == "interrupted":
        return state.context.interrupt.reason
    is_short = state.outcome.cursor.step < state.steps.total_steps
    return state.opened.best.reason if state.opened.best is not None and is_short else None


_PLAIN_NAMES = {
    "accuracy": (keys.TEST_ACCURACY, keys.TEST_CORRECT, keys.TEST_EXACT_MATCH),
    "precision": (keys.TEST_PRECISION,),
    "recall": (keys.TEST_RECALL,),
    "f1": (keys.TEST_F1,),
}
"""Plain names of results, with the metrics that each may be: the first that was measured."""


def with_plain_names(results: Mapping[str, Any]) -> dict[str, Any]:
    """Metrics, and `accuracy`, `precision`, `recall` and `f1` with them where one of them is that."""
    plain = {
        name: next((results[metric] for metric in metrics if metric in results), None)
        for name, metrics in _PLAIN_NAMES.items()
    }
    return {**results, **{name: value for name, value in plain.items() if value is not None}}


def _next_command(state: TrainingState, is_interrupted: bool) -> str:
    folder = shlex.quote(str(state.opened.folder.path))
    if is_interrupted:
        limit = state.config.max_tokens_total
        is_spent = limit is not None and (state.context.interrupt.reason or "").startswith("max_tokens_total")
        more = f" max_tokens_total={2 * limit}" if limit is not None and is_spent else ""  # with as many it is refused
        return f"cookhouse {state.context.command} log_path={folder} behavior_if_log_dir_exists=resume{more}"
    return f"cookhouse sample {folder}"


def _artifacts(folder: RunFolder, summary: RunSummary) -> dict[str, str]:
    path = folder.path
    paths = {
        "folder": path,
        "config": path / CONFIG_FILE,
        "metrics": folder.metrics,
        "checkpoints": path / CHECKPOINTS_FILE,
        "log": path / LOG_FILE,
        "trace": folder.trace,
        "report": summary.report,
        "state_path": summary.state_path,
        "sampler_path": summary.sampler_path,
        "registered_model": summary.registered_model,
    }
    return {name: str(place) for name, place in paths.items() if place is not None}


def _samples(state: TrainingState, num_samples: int) -> list[AnswerSample]:
    """Answers before and after training, evenly spaced through the held-out problems sorted by their group.

    Each group has its share, whatever the answers are.
    """
    before = state.opened.folder.read_answers(0)
    after = state.opened.folder.read_answers(state.outcome.cursor.step) if state.eval_results else []
    asked = after or before
    count = min(num_samples, len(asked))
    by_group = sorted(range(len(asked)), key=lambda index: asked[index].group or "")
    chosen = [by_group[index * len(asked) // count] for index in range(count)]
    return [
        AnswerSample(
            prompt=asked[index].prompt,
            earlier=asked[index].earlier,
            expected=asked[index].expected,
            before=_answer(before, index),
            after=_answer(after, index),
        )
        for index in chosen
    ]


def _answer(answers: Sequence[RecordedAnswer], index: int) -> str | None:
    return answers[index].answer if index < len(answers) else None
