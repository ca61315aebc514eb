"""Several models at the same benchmarks: an evaluation of each, and what separates them, item by item."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from cookhouse import algorithms as alg
from cookhouse.data import from_store
from cookhouse.evals import (
    Attempt,
    Estimate,
    Outcome,
    benchmark_figures,
    is_of_group,
    load_benchmark,
    paired_difference,
    sources_of_benchmarks,
)
from cookhouse.evals.inspect.records import InspectTask
from cookhouse.files import write_whole
from cookhouse.naming import names_in
from cookhouse.report import PairedTable, paired_page
from cookhouse.runs import Figure, RunFolder, RunResult
from cookhouse.runs.names import COMPARISON_FILE, REPORT_FILE
from cookhouse.settings import EvalSettings
from cookhouse.workflows.evaluation.attempt_files import AttemptFiles
from cookhouse.workflows.evaluation.inspect_stages import inspect_results, inspect_tasks
from cookhouse.workflows.evaluation.state import is_shown_as_share, logs_remark
from cookhouse.workflows.evaluation.workflow import evaluated_benchmarks
from cookhouse.workflows.pipeline import ChildRun, PipelineRunState, PrepareChild, RunChild, pipeline_workflow


@dataclass(kw_only=True)
class ComparisonState(PipelineRunState):
    """Of several models."""

    config: EvalSettings
    models: Sequence[str]
    paired: PairedTable = field(init=False)

    def result(self, seconds: float) -> RunResult[Any]:
        """The pipeline's, with the differences and the page that has them."""
        result = super().result(seconds)
        page = self.folder.path / COMPARISON_FILE
        if result.summary.is_interrupted or not page.exists():
            return result
        differences = {
            f"model-{number}/difference/{name}": each.mean
            for name, some in self.paired.differences.items()
            for number, each in enumerate(some, start=2)
        }
        summary = replace(
            result.summary,
            model_name=", ".join(self.models),
            report=page,
            figures=_figures(self.paired),
            remark=logs_remark(self.config, self.folder.path),
            total_steps=0,
        )
        return replace(
            result,
            metrics={**result.metrics, **differences},
            artifacts={**result.artifacts, "comparison": str(page)},
            summary=summary,
        )


def comparison_workflow(
    config: EvalSettings,
    runs: Sequence[ChildRun],
    models: Sequence[str],
    run_child: RunChild,
    prepare_child: PrepareChild,
) -> alg.Workflow[ComparisonState]:
    """The evaluations one after another, then what separates the models from the first."""
    workflow = pipeline_workflow(config, runs, run_child, prepare_child).with_state(ComparisonState, models=models)
    return replace(workflow, name="comparison", final=(compare_models,))


@alg.stage(doing="comparing the answers")
async def compare_models(
    context: alg.RunContext,
    config: EvalSettings,
    models: Sequence[str],
    folder: RunFolder,
    results: dict[str, RunResult[Any]],
) -> PairedTable:
    """Read what each model answered, and write the page that compares them."""
    tasks = await inspect_tasks(config)
    folders = [result.summary.folder for result in results.values()]
    paired = await asyncio.to_thread(_paired, context, config, models, folders, tasks)
    asked = ", ".join(names_in(config.benchmark) + names_in(config.inspect))
    names = [f"{name}/{REPORT_FILE}" for name in results]
    page = paired_page(paired, links=names, title=f"{len(models)} models at {asked}")
    write_whole(folder.path / COMPARISON_FILE, page)
    return paired


def _paired(
    context: alg.RunContext,
    config: EvalSettings,
    models: Sequence[str],
    folders: Sequence[Path],
    tasks: Sequence[InspectTask],
) -> PairedTable:
    figures: dict[str, list[Estimate | None]] = {}
    attempts: dict[str, list[Sequence[Attempt]]] = {}

    def add(name: str, number: int, found: Mapping[str, Estimate], answered: Sequence[Attempt]) -> None:
        attempts.setdefault(name, [()] * len(folders))[number] = answered
        for figure, estimate in found.items():
            if not is_of_group(figure):
                figures.setdefault(f"{name}/{figure}", [None] * len(folders))[number] = estimate

    benchmarks, store = evaluated_benchmarks(config), context.adapters.datasets
    sources = sources_of_benchmarks(benchmarks, config.benchmark_data)
    loaded = [load_benchmark(each, from_store(sources[each.name], store), config.limit) for each in benchmarks]
    for number, folder in enumerate(folders):
        log = AttemptFiles(folder)
        for each in loaded:
            answered = log.attempts(each.name)
            add(each.name, number, benchmark_figures(each, answered), answered)
        for result in inspect_results(folder, tasks):
            add(result.name, number, result.figures, result.attempts)
    differences = {
        name: [paired_difference(first, others) for others in rest] for name, (first, *rest) in attempts.items()
    }
    return PairedTable(models=models, figures=figures, differences=differences)


def _figures(paired: PairedTable) -> list[Figure]:
    """Scores of each model, then the differences from the first."""
    first, *others = paired.models
    reached = [
        Figure(
            name=name,
            label=f"{name}: {model}",
            before=None,
            after=each.mean,
            is_share=is_shown_as_share(name),
            stderr=each.stderr,
            n=each.n,
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
