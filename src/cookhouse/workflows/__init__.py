"""Workflows: named stages over a run's state, with one training loop among them."""

from cookhouse.workflows.result import AnswerSample, DryRunReport, RunResult, RunSummary

__all__ = ["AnswerSample", "DryRunReport", "RunResult", "RunSummary"]
