"""What a supervised run hands back, and what a dry run of one finds."""

import asyncio
import shlex
from collections.abc import Mapping, Sequence

from cookhouse.errors import InputError
from cookhouse.hyperparams import lora_parameter_count
from cookhouse.telemetry import Telemetry, keys, read_metrics
from cookhouse.training import Interrupt, Service
from cookhouse.workflows.folder import CHECKPOINTS_FILE, CONFIG_FILE, LOG_FILE, RecordedAnswer, choose_folder
from cookhouse.workflows.result import AnswerSample, DryRunReport, Figure, RunResult, RunSummary
from cookhouse.workflows.supervised import (
    SupervisedPlan,
    SupervisedState,
    build_supervised_dataset,
    init_tokenizer,
    load_dataset,
    preview,
)

_BYTES_PER_PARAMETER = 16
"""Weight, gradient and two Adam moments, four bytes each."""


def supervised_result(state: SupervisedState, *, num_samples: int, seconds: float) -> RunResult:
    """The result of a run that ended well or was interrupted; figures from before a resume come from the run folder."""
    rows = read_metrics(state.folder.metrics)
    before = rows[0] if rows and rows[0]["step"] == 0 else {}
    last_trained = next((row for row in reversed(rows) if keys.TRAIN_LOSS in row), {})
    after = state.eval_results
    saved = state.checkpoints.read()
    is_interrupted = state.outcome.is_interrupted
    summary = RunSummary(
        recipe=state.plan.folder.recipe,
        model_name=state.plan.model_name,
        folder=state.folder.path,
        is_interrupted=is_interrupted,
        num_steps=state.outcome.cursor.step,
        total_steps=state.total_steps,
        seconds=seconds,
        figures=_figures(before, last_trained, after),
        samples=_samples(state, num_samples),
        state_path=next((point.state_path for point in reversed(saved) if point.state_path), None),
        sampler_path=next((point.sampler_path for point in reversed(saved) if point.sampler_path), None),
        next_command=_next_command(state, is_interrupted),
    )
    return RunResult(
        state=state, metrics={**state.outcome.metrics, **after}, artifacts=_artifacts(state, summary), summary=summary
    )


def _figures(
    before: Mapping[str, float], last_trained: Mapping[str, float], after: Mapping[str, float]
) -> tuple[Figure, ...]:
    return (
        Figure(
            name=keys.TEST_NLL,
            label="held-out loss (nats per token)",
            before=before.get(keys.TEST_NLL),
            after=after.get(keys.TEST_NLL),
        ),
        Figure(
            name=keys.TEST_EXACT_MATCH,
            label="held-out exact match",
            before=before.get(keys.TEST_EXACT_MATCH),
            after=after.get(keys.TEST_EXACT_MATCH),
            is_share=True,
        ),
        Figure(
            name=keys.TRAIN_LOSS,
            label="training loss of the last step",
            before=None,
            after=last_trained.get(keys.TRAIN_LOSS),
        ),
    )


def _next_command(state: SupervisedState, is_interrupted: bool) -> str:
    folder = shlex.quote(str(state.folder.path))
    if is_interrupted:
        return f"cookhouse run {state.plan.folder.recipe} log_path={folder} behavior_if_log_dir_exists=resume"
    return f"cookhouse sample --run {folder}"


def _artifacts(state: SupervisedState, summary: RunSummary) -> dict[str, str]:
    path = state.folder.path
    paths = {
        "folder": path,
        "config": path / CONFIG_FILE,
        "metrics": state.folder.metrics,
        "checkpoints": path / CHECKPOINTS_FILE,
        "log": path / LOG_FILE,
        "trace": state.folder.trace,
        "state_path": summary.state_path,
        "sampler_path": summary.sampler_path,
    }
    return {name: str(place) for name, place in paths.items() if place is not None}


def _samples(state: SupervisedState, num_samples: int) -> list[AnswerSample]:
    """Answers evenly spaced through the held-out conversations, as they were before and after training."""
    before = state.folder.read_answers(0)
    after = state.folder.read_answers(state.outcome.cursor.step) if state.eval_results else []
    asked = after or before
    count = min(num_samples, len(asked))
    chosen = [index * len(asked) // count for index in range(count)]
    return [
        AnswerSample(
            prompt=asked[index].prompt,
            expected=asked[index].expected,
            before=_answer(before, index),
            after=_answer(after, index),
        )
        for index in chosen
    ]


def _answer(answers: Sequence[RecordedAnswer], index: int) -> str | None:
    return answers[index].answer if index < len(answers) else None


def dry_run_supervised(plan: SupervisedPlan) -> DryRunReport:
    """Run the stages that need no service, and report what they found.

    Raises:
        InputError: a run would be refused for the same reason.
    """
    state = SupervisedState(
        telemetry=Telemetry(),
        interrupt=Interrupt(),
        service=_no_service,
        plan=plan,
        choice=choose_folder(plan.folder),
    )
    asyncio.run(_prepare(state))
    return DryRunReport(
        recipe=plan.folder.recipe,
        config=plan.folder.config,
        folder=plan.folder.path,
        facts=_facts(state),
        previews=preview(state),
    )


def _facts(state: SupervisedState) -> dict[str, str]:
    plan, found = state.plan, state.dataset.statistics
    share = found.num_trained_tokens / found.num_tokens if found.num_tokens else 0.0
    return {
        "tokenizer": plan.model_name,
        "renderer": plan.renderer_name,
        "conversations": f"{len(state.train):,} to train on, {len(state.test):,} held out",
        "examples": f"{found.num_examples:,}, of which {found.num_truncated:,} are cut to max_length",
        "tokens": f"{found.num_tokens:,}, of which {found.num_trained_tokens:,} ({share:.1%}) are trained on",
        "longest example": f"{found.longest_tokens:,} tokens",
        "steps": f"{state.total_steps:,} in all, {len(state.dataset):,} per epoch",
        "adapter": adapter_size(plan.model_name, plan.lora_rank),
    }


async def _prepare(state: SupervisedState) -> None:
    for stage in (load_dataset, init_tokenizer, build_supervised_dataset):
        await stage.run(state)


async def _no_service() -> Service:
    raise AssertionError("a dry run makes no request")


def adapter_size(model_name: str, lora_rank: int) -> str:
    """Parameters of an adapter, and the memory that it takes at the service."""
    try:
        parameters = lora_parameter_count(model_name, lora_rank)
    except InputError:  # the weights are elsewhere, with the service
        return "size unknown: the model's config cannot be read here"
    num_bytes = parameters * _BYTES_PER_PARAMETER
    return f"{parameters:,} parameters, {num_bytes / 1e6:,.1f} MB with gradient and moments"
