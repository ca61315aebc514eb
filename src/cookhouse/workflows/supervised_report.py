"""What a supervised run hands back, and what a dry run of one finds."""

import asyncio
import shlex
from collections.abc import Sequence

from cookhouse.errors import InputError
from cookhouse.hyperparams import lora_parameter_count
from cookhouse.telemetry import Telemetry, keys, read_metrics
from cookhouse.training import Interrupt, Service
from cookhouse.workflows.folder import CHECKPOINTS_FILE, CONFIG_FILE, LOG_FILE, RecordedAnswer, choose_folder
from cookhouse.workflows.result import AnswerSample, DryRunReport, RunResult, RunSummary
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
        train_loss=last_trained.get(keys.TRAIN_LOSS),
        loss_before=before.get(keys.TEST_NLL),
        loss_after=after.get(keys.TEST_NLL),
        exact_match_before=before.get(keys.TEST_EXACT_MATCH),
        exact_match_after=after.get(keys.TEST_EXACT_MATCH),
        samples=_samples(state, num_samples),
        state_path=next((point.state_path for point in reversed(saved) if point.state_path), None),
        sampler_path=next((point.sampler_path for point in reversed(saved) if point.sampler_path), None),
        next_command=_next_command(state, is_interrupted),
    )
    return RunResult(
        state=state, metrics={**state.outcome.metrics, **after}, artifacts=_artifacts(state, summary), summary=summary
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
    parameters = _adapter_parameters(plan)
    statistics = state.dataset.statistics
    return DryRunReport(
        recipe=plan.folder.recipe,
        config=plan.folder.config,
        folder=plan.folder.path,
        renderer_name=plan.renderer_name,
        tokenizer_name=plan.model_name,
        num_conversations=len(state.train),
        num_examples=statistics.num_examples,
        num_tokens=statistics.num_tokens,
        num_trained_tokens=statistics.num_trained_tokens,
        num_truncated=statistics.num_truncated,
        longest_tokens=statistics.longest_tokens,
        num_test_conversations=len(state.test),
        steps_per_epoch=len(state.dataset),
        total_steps=state.total_steps,
        adapter_parameters=parameters,
        adapter_bytes=None if parameters is None else parameters * _BYTES_PER_PARAMETER,
        previews=preview(state),
    )


async def _prepare(state: SupervisedState) -> None:
    for stage in (load_dataset, init_tokenizer, build_supervised_dataset):
        await stage.run(state)


async def _no_service() -> Service:
    raise AssertionError("a dry run makes no request")


def _adapter_parameters(plan: SupervisedPlan) -> int | None:
    try:
        return lora_parameter_count(plan.model_name, plan.lora_rank)
    except InputError:
        return None  # the weights are elsewhere, with the service
