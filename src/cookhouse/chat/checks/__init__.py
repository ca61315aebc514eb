"""Checks of a renderer's promises, on conversations that are awkward to write."""

from cookhouse.chat.checks.agreement import difference_from_template
from cookhouse.chat.checks.awkward import AWKWARD
from cookhouse.chat.checks.promises import CheckOutcome, CheckResult, check_renderer

__all__ = ["AWKWARD", "CheckOutcome", "CheckResult", "check_renderer", "difference_from_template"]
