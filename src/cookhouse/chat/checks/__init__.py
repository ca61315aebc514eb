"""Checks that a renderer keeps its promises, tried on conversations that are awkward to write."""

from cookhouse.chat.checks.agreement import difference_from_template
from cookhouse.chat.checks.awkward import AWKWARD
from cookhouse.chat.checks.promises import CheckResult, Outcome, check_renderer

__all__ = ["AWKWARD", "CheckResult", "Outcome", "check_renderer", "difference_from_template"]
