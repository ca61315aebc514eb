"""Summary of an evaluation: before it runs, and when it is over."""

import shlex
from collections.abc import Mapping

from cookhouse.evals import Outcome, is_of_group
from cookhouse.runs import Figure, RunResult, RunSummary
from cookhouse.runs.names import ATTEMPT_ANSWERS_FILE, INSPECT_FOLDER, REPORT_FILE
from cookhouse.telemetry import find_metric
from cookhouse.workflows.evaluation.inspect_stages import logs_remark, page_of
from cookhouse.workflows.evaluation.state import EvaluationState


def evaluation_facts(state: EvaluationState) -> Mapping[str, str]:
    """Facts of the evaluation that would run."""
    config = state.config
    items = {
        loaded.name: f"{len(loaded.items):,} of {loaded.num_all:,} items from {state.sources[loaded.name]}"
        for loaded in state.loaded
    }
    items |= {
        task.name: f"{len(task.asked_ids):,} of {len(task.all_ids):,} samples of {task.spec}"
        + (f", {task.epochs} times" if task.epochs > 1 else "")
        for task in state.tasks
    }
    samples = "" if config.num_samples == 1 else f", {config.num_samples} samples of each item"
    return {
        "weights": config.weights or config.model_name,
        **items,
        "sampling": f"temperature {config.temperature:g}, seed {config.seed}{samples}",
    }


def evaluation_result(state: EvaluationState, seconds: float) -> RunResult[EvaluationState]:
    """Every figure, and where what was answered can be read."""
    path, is_whole = state.folder.path, state.status != "interrupted"
    folder = shlex.quote(str(path))
    pages = {
        f"{name}/transcripts": str(page) for name in state.figures if (page := page_of(state.folder, name)).exists()
    }
    logs = {f"{result.name}/log": str(result.log) for result in state.inspected}
    report = path / REPORT_FILE
    resume = f"cookhouse {state.context.command} log_path={folder} behavior_if_log_dir_exists=resume"
    summary = RunSummary(
        recipe=state.context.recipe,
        model_name=state.config.weights or state.config.model_name,
        folder=path,
        is_interrupted=not is_whole,
        num_steps=0,
        total_steps=0,
        seconds=seconds,
        figures=_figures(state),
        samples=(),
        remark=logs_remark(state.config, path / INSPECT_FOLDER),
        report=report if report.exists() else None,
        state_path=None,
        sampler_path=None,
        next_command=f"cookhouse report {folder}" if is_whole else resume,
        stopped=None if is_whole else state.interrupt.reason,
    )
    artifacts = {
        "folder": str(path),
        "report": str(report),
        "answers": str(path / ATTEMPT_ANSWERS_FILE),
        **pages,
        **logs,
    }
    metrics = dict(state.eval_results)
    if len(state.figures) == 1 and (correct := f"test/{next(iter(state.figures))}/correct") in metrics:
        state.eval_results["accuracy"] = metrics[correct]
    return RunResult(state=state, metrics=metrics, artifacts=artifacts, summary=summary)


def _figures(state: EvaluationState) -> list[Figure]:
    return [
        Figure(
            name=f"test/{benchmark}/{name}",
            label=f"{benchmark} {name}, of {estimate.n:,}",
            before=None,
            after=estimate.mean,
            is_share=is_shown_as_share(f"{benchmark}/{name}"),
            stderr=estimate.stderr,
        )
        for benchmark, figures in state.figures.items()
        for name, estimate in figures.items()
        if not is_of_group(name) and (name not in set(Outcome) or estimate.mean)
    ]


def is_shown_as_share(name: str) -> bool:
    """True if a figure is a share. Those of benchmarks are; of a task of Inspect AI, the metric's name shows it."""
    return not name.startswith("inspect/") or find_metric(name).is_share
