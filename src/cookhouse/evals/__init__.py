"""Evaluators, scores, and previews of what is trained.

Each name is loaded when it is first asked for: what two models differ by needs no SDK.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cookhouse.evals.benchmarks.answerers import Answerer, CompleterAnswerer, SamplingAnswerer
    from cookhouse.evals.benchmarks.attempts import Attempt, AttemptLog, Grade, Key, Outcome, SampledAnswer
    from cookhouse.evals.benchmarks.benchmark import BENCHMARKS, Benchmark, BenchmarkItem, ItemText, choice_item
    from cookhouse.evals.benchmarks.figures import Estimate, as_metrics, benchmark_figures, is_of_group
    from cookhouse.evals.benchmarks.loading import (
        LoadedBenchmark,
        benchmarks_named,
        load_benchmark,
        sources_of_benchmarks,
    )
    from cookhouse.evals.benchmarks.open_ai import CompletedBy, OpenAIAnswerer
    from cookhouse.evals.benchmarks.pairing import PairedDifference, paired_difference
    from cookhouse.evals.benchmarks.runner import AnswerOptions, ask_benchmark
    from cookhouse.evals.evaluator import (
        Evaluator,
        EvaluatorBuilder,
        Metrics,
        PreparedEvaluator,
        SamplingClientEvaluator,
        TrainingClientEvaluator,
    )
    from cookhouse.evals.evaluators import EVALUATORS
    from cookhouse.evals.exact_match import ExactMatchEvaluator, HeldOutAnswer
    from cookhouse.evals.labels import labels_of
    from cookhouse.evals.nll import NLLEvaluator
    from cookhouse.evals.noop import NoopEvaluator, noop_evaluator
    from cookhouse.evals.preference import JudgedComparison, comparison_metrics, judge_comparisons, note_comparisons
    from cookhouse.evals.preview import preview_example, preview_pieces, preview_plain, preview_rich
    from cookhouse.evals.scores import (
        accuracy,
        classification,
        is_exact_match,
        mean,
        pass_at_k,
        standard_error,
    )
    from cookhouse.evals.win_rate import JudgedAnswer, RivalAnswers, judge_answers, note_answers, win_metrics
    from cookhouse.sampling_client import SampleClient
    from cookhouse.telemetry import wilson_interval

_PLACES = {
    "evals.benchmarks.answerers": ("Answerer", "CompleterAnswerer", "SamplingAnswerer"),
    "evals.benchmarks.attempts": ("Key", "Attempt", "AttemptLog", "Grade", "Outcome", "SampledAnswer"),
    "evals.benchmarks.benchmark": ("BENCHMARKS", "Benchmark", "BenchmarkItem", "ItemText", "choice_item"),
    "evals.benchmarks.figures": ("Estimate", "as_metrics", "benchmark_figures", "is_of_group"),
    "evals.benchmarks.loading": ("LoadedBenchmark", "benchmarks_named", "load_benchmark", "sources_of_benchmarks"),
    "evals.benchmarks.open_ai": ("CompletedBy", "OpenAIAnswerer"),
    "evals.benchmarks.pairing": ("PairedDifference", "paired_difference"),
    "evals.benchmarks.runner": ("AnswerOptions", "ask_benchmark"),
    "evals.evaluator": (
        "Evaluator",
        "EvaluatorBuilder",
        "Metrics",
        "PreparedEvaluator",
        "SamplingClientEvaluator",
        "TrainingClientEvaluator",
    ),
    "evals.evaluators": ("EVALUATORS",),
    "evals.exact_match": ("HeldOutAnswer", "ExactMatchEvaluator"),
    "evals.labels": ("labels_of",),
    "evals.nll": ("NLLEvaluator",),
    "evals.noop": ("NoopEvaluator", "noop_evaluator"),
    "evals.preference": ("JudgedComparison", "comparison_metrics", "judge_comparisons", "note_comparisons"),
    "evals.preview": ("preview_example", "preview_pieces", "preview_plain", "preview_rich"),
    "evals.scores": (
        "accuracy",
        "classification",
        "is_exact_match",
        "mean",
        "pass_at_k",
        "standard_error",
    ),
    "evals.win_rate": ("JudgedAnswer", "RivalAnswers", "judge_answers", "note_answers", "win_metrics"),
    "sampling_client": ("SampleClient",),
    "telemetry": ("wilson_interval",),
}
_MODULES = {name: module for module, names in _PLACES.items() for name in names}

__all__ = [
    "BENCHMARKS",
    "EVALUATORS",
    "AnswerOptions",
    "Answerer",
    "Attempt",
    "AttemptLog",
    "Benchmark",
    "BenchmarkItem",
    "CompletedBy",
    "CompleterAnswerer",
    "Estimate",
    "Evaluator",
    "EvaluatorBuilder",
    "ExactMatchEvaluator",
    "Grade",
    "HeldOutAnswer",
    "ItemText",
    "JudgedAnswer",
    "JudgedComparison",
    "Key",
    "LoadedBenchmark",
    "Metrics",
    "NLLEvaluator",
    "NoopEvaluator",
    "OpenAIAnswerer",
    "Outcome",
    "PairedDifference",
    "PreparedEvaluator",
    "RivalAnswers",
    "SampleClient",
    "SampledAnswer",
    "SamplingAnswerer",
    "SamplingClientEvaluator",
    "TrainingClientEvaluator",
    "accuracy",
    "as_metrics",
    "ask_benchmark",
    "benchmark_figures",
    "benchmarks_named",
    "choice_item",
    "classification",
    "comparison_metrics",
    "is_exact_match",
    "is_of_group",
    "judge_answers",
    "judge_comparisons",
    "labels_of",
    "load_benchmark",
    "mean",
    "noop_evaluator",
    "note_answers",
    "note_comparisons",
    "paired_difference",
    "pass_at_k",
    "preview_example",
    "preview_pieces",
    "preview_plain",
    "preview_rich",
    "sources_of_benchmarks",
    "standard_error",
    "wilson_interval",
    "win_metrics",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"cookhouse.{_MODULES[name]}"), name)
