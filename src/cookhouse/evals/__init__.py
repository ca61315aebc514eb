"""Evaluators, scores, and previews of what is trained."""

from cookhouse.evals.evaluator import (
    EVALUATORS,
    Evaluator,
    EvaluatorBuilder,
    ForwardClient,
    Metrics,
    SamplingClientEvaluator,
    TrainingClientEvaluator,
)
from cookhouse.evals.exact_match import Answer, ExactMatchEvaluator
from cookhouse.evals.nll import NLLEvaluator
from cookhouse.evals.noop import NoopEvaluator, noop_evaluator
from cookhouse.evals.preference import (
    JudgedComparison,
    comparison_metrics,
    judge_comparisons,
    note_comparisons,
)
from cookhouse.evals.preview import preview_example, preview_pieces, preview_plain, preview_rich
from cookhouse.evals.scores import (
    Averaging,
    Classification,
    accuracy,
    classification,
    is_exact_match,
    mean,
    standard_error,
    wilson_interval,
)
from cookhouse.sampling_client import SampleClient

__all__ = [
    "EVALUATORS",
    "Answer",
    "Averaging",
    "Classification",
    "Evaluator",
    "EvaluatorBuilder",
    "ExactMatchEvaluator",
    "ForwardClient",
    "JudgedComparison",
    "Metrics",
    "NLLEvaluator",
    "NoopEvaluator",
    "SampleClient",
    "SamplingClientEvaluator",
    "TrainingClientEvaluator",
    "accuracy",
    "classification",
    "comparison_metrics",
    "is_exact_match",
    "judge_comparisons",
    "mean",
    "noop_evaluator",
    "note_comparisons",
    "preview_example",
    "preview_pieces",
    "preview_plain",
    "preview_rich",
    "standard_error",
    "wilson_interval",
]
