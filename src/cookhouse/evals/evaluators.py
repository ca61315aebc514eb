"""Evaluators by name: benchmarks, tasks of Inspect AI, and one's own."""

from typing import Any

from cookhouse.evals.benchmarks.benchmark import BENCHMARKS, Benchmark
from cookhouse.evals.evaluator import EvaluatorBuilder
from cookhouse.evals.inspect import is_inspect_task, task_place
from cookhouse.naming import OpenSet


def _check(thing: Any) -> EvaluatorBuilder | None:
    if isinstance(thing, Benchmark):
        from cookhouse.evals.benchmarks.inline import benchmark_evaluator

        return benchmark_evaluator(thing)
    if is_inspect_task(thing):
        from cookhouse.evals.inspect.evaluator import inspect_evaluator

        return inspect_evaluator(thing)
    return thing if callable(thing) else None


EVALUATORS: OpenSet[EvaluatorBuilder] = OpenSet(
    kind="evaluator",
    group="cookhouse.evaluators",
    builtin=BENCHMARKS.builtin,
    check=_check,
    wants="an evaluator is named by a benchmark, by a task of Inspect AI, or by a function of the settings and the "
    "renderer that makes one",
    takes=("settings", "renderer"),
    of_files=BENCHMARKS.of_files,
    other_spelling=task_place,
)
