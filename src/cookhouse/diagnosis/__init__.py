"""Diagnosis: what the metrics of a run show to be wrong, with the figures that show it and what to try next."""

from cookhouse.diagnosis.finding import Finding, Severity
from cookhouse.diagnosis.history import MetricHistory
from cookhouse.diagnosis.rule import Rule, RunFacts
from cookhouse.diagnosis.rules import RULES, diagnose, findings_in, is_read
from cookhouse.diagnosis.watch import FindingsWatch

__all__ = [
    "RULES",
    "Finding",
    "FindingsWatch",
    "MetricHistory",
    "Rule",
    "RunFacts",
    "Severity",
    "diagnose",
    "findings_in",
    "is_read",
]
