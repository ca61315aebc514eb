"""Several models at the same benchmarks: an evaluation of each, and what separates them, item by item."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from cookhouse.algorithms.stages.stage import stage
from cookhouse.algorithms.stages.workflow import Workflow
from cookhouse.data import from_store
from cookhouse.evals import (
    Attempt,
    Estimate,
    LoadedBenchmark,
    Outcome,
    benchmark_figures,
    is_of_group,
    load_benchmark,
    paired_difference,
    sources_of_benchmarks,
)
from cookhouse.files import write_whole
from cookhouse.naming import names_in
from cookhouse.report import PairedTable, paired_page
from cookhouse.runs import Figure, RunResult
from cookhouse.runs.names import COMPARISON_FILE, REPORT_FILE
from cookhouse.settings import EvalSettings
from cookhouse.workflows.evaluation.attempt_files import AttemptFiles
from cookhouse.workflows.evaluation.inspect_stages import inspect_results, inspect_tasks, logs_remark
from cookhouse.workflows.evaluation.summary import is_shown_as_share
from cookhouse.workflows.evaluation.workflow import evaluated_benchmarks
from cookhouse.workflows.pipeline import ChildRun, PipelineRunState, PrepareChild, RunChild, pipeline_workflow

if TYPE_CHECKING:
    from cookhouse.evals.inspect.tasks import InspectTask


@dataclass(kw_only=True)
class ComparisonState(PipelineRunState):
    """Of several models."""

    config: EvalSettings
    models: Sequence[str]
    paired: PairedTable = field(init=False)


def comparison_workflow(
    config: EvalSettings,
    runs: Sequence[ChildRun],
    models: Sequence[str],
    run_child: RunChild,
    prepare_child: PrepareChild,
) -> Workflow[Any]:
    """The evaluations one after another, then what separates the models from the first."""
    workflow = pipeline_workflow(config, runs, run_child, prepare_child).with_state(
        ComparisonState, lambda context: ComparisonState(context=context, config=config, models=models)
    )
    pipeline_result = workflow.result
    return replace(
        workflow,
        name="comparison",
        final=(compare_models,),
        result=lambda state, seconds: _result(state, pipeline_result(state, seconds)),
    )


@stage(doing="comparing the answers", reads=("config", "models", "path"), writes=("paired",))
async def compare_models(state: ComparisonState) -> None:
    """Read what each model answered, and write the page that compares them."""
    state.paired = await asyncio.to_thread(_paired, state, await inspect_tasks(state.config))
    names = [f"{name}/{REPORT_FILE}" for name in state.results]
    page = paired_page(state.paired, links=names, title=f"{len(state.models)} models at {_asked(state.config)}")
    write_whole(state.path / COMPARISON_FILE, page)


def _paired(state: ComparisonState, tasks: "Sequence[InspectTask]") -> PairedTable:
    folders = [result.summary.folder for result in state.results.values()]
    logs = [AttemptFiles(folder) for folder in folders]
    figures: dict[str, list[Estimate | None]] = {}
    attempts: dict[str, list[Sequence[Attempt]]] = {}

    def add(name: str, number: int, found: Mapping[str, Estimate], answered: Sequence[Attempt]) -> None:
        attempts.setdefault(name, [()] * len(folders))[number] = answered
        for figure, estimate in found.items():
            if not is_of_group(figure):
                figures.setdefault(f"{name}/{figure}", [None] * len(folders))[number] = estimate

    loaded = _loaded(state)
    for number, (folder, log) in enumerate(zip(folders, logs, strict=True)):
        for each in loaded:
            answered = log.attempts(each.name)
            add(each.name, number, benchmark_figures(each, answered), answered)
        for result in inspect_results(folder, tasks):
            add(result.name, number, result.figures, result.attempts)
    differences = {
        name: [paired_difference(first, others) for others in rest] for name, (first, *rest) in attempts.items()
    }
    return PairedTable(models=state.models, figures=figures, differences=differences)


def _asked(config: EvalSettings) -> str:
    return ", ".join(names_in(config.benchmark) + names_in(config.inspect))


def _loaded(state: ComparisonState) -> list[LoadedBenchmark]:
    config = state.config
    benchmarks = evaluated_benchmarks(config)
    sources = sources_of_benchmarks(benchmarks, config.benchmark_data)
    store = state.context.adapters.datasets
    return [load_benchmark(each, from_store(sources[each.name], store), config.limit) for each in benchmarks]


def _result(state: ComparisonState, result: RunResult[Any]) -> RunResult[Any]:
    """The pipeline's, with the differences and the page that has them."""
    page = state.path / COMPARISON_FILE
    if result.summary.is_interrupted or not page.exists():
        return result
    differences = {
        f"model-{number}/difference/{name}": some[number - 2].mean
        for name, some in state.paired.differences.items()
        for number in range(2, len(state.models) + 1)
    }
    summary = replace(
        result.summary,
        model_name=", ".join(state.models),
        report=page,
        figures=_figures(state),
        remark=logs_remark(state.config, state.path),
        total_steps=0,
    )
    return replace(
        result,
        metrics={**result.metrics, **differences},
        artifacts={**result.artifacts, "comparison": str(page)},
        summary=summary,
    )


def _figures(state: ComparisonState) -> list[Figure]:
    """Scores of each model, then the differences from the first."""
    paired = state.paired
    first, *others = paired.models
    reached = [
        Figure(
            name=name,
            label=f"{name}: {model}",
            before=None,
            after=each.mean,
            is_share=is_shown_as_share(name),
            stderr=each.stderr,
        )
        for name, estimates in paired.figures.items()
        for model, each in zip(paired.models, estimates, strict=True)
        if each is not None and name.rpartition("/")[2] not in set(Outcome)
    ]
    differences = [
        Figure(name=name, label=f"{name}: {model} less {first}", before=None, after=each.mean, stderr=each.stderr)
        for name, some in paired.differences.items()
        for model, each in zip(others, some, strict=True)
    ]
    return reached + differences
