"""Spending of a run: what it is expected to send and to sample, what that costs, and what it has spent."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from cookhouse.algorithms.stages.state import RunContext
from cookhouse.errors import InputError
from cookhouse.runs import FolderChoice, read_history
from cookhouse.runs.history.facts import usage_text
from cookhouse.settings import TrainingSettings
from cookhouse.settings.spending import PRICED
from cookhouse.telemetry import events
from cookhouse.training import ServiceClient
from cookhouse.training.clients.metering import TokenMeter


@dataclass(frozen=True, kw_only=True)
class ExpectedTokens:
    """Tokens that a run's steps send and sample, as far as they are known before it."""

    tokens: Mapping[str, int] = field(default_factory=dict)
    """By the names that they are counted by."""
    degree: str = ""
    """`about` or `at most`; nothing: exactly."""
    remark: str = ""
    """Where the figures come from."""
    on_top: str = "evaluations"
    """What is not among them."""

    def __str__(self) -> str:
        remark = f" ({self.remark})" if self.remark else ""
        return f"{self.degree} {usage_text(self.tokens)}{remark}; on top: {self.on_top}".strip()


def in_steps(count: int, num_steps: int, per_step: int) -> str:
    """A number of items, as so many in each step where all steps have as many."""
    return f"{num_steps:,} steps × {per_step:,}" if count == num_steps * per_step else f"{count:,}"


def expected_facts(expected: ExpectedTokens | None, prices: Mapping[str, float]) -> dict[str, str]:
    """Both, for the plan of a run."""
    if expected is None:
        return {}
    cost = cost_text(expected.tokens, prices)
    return {
        "usage": str(expected),
        **({} if cost is None else {"cost": f"{expected.degree} {cost}; on top: {expected.on_top}".strip()}),
    }


def cost_text(usage: Mapping[str, float], prices: Mapping[str, float]) -> str | None:
    """Cost of tokens, and those that have no price; None where there are no prices at all."""
    if not prices:
        return None
    counts = {kind: sum(usage.get(name, 0) for name in names) for kind, names in PRICED.items()}
    cost = sum(counts[kind] * price for kind, price in prices.items()) / 1e6
    free = [f"{round(counts[kind]):,} of {kind}" for kind in PRICED if kind not in prices and counts[kind]]
    without = f"; tokens without a price: {', '.join(free)}" if free else ""
    by = ", ".join(f"{kind} {price:g}" for kind, price in prices.items())
    return f"{cost:,.6g}, by {by} per million{without}"


def token_meter(config: TrainingSettings, context: RunContext) -> TokenMeter:
    """Counts for a run, from what its earlier launches have used.

    Raises:
        InputError: they have used all that the run may.
    """
    is_resumed = context.choice is FolderChoice.RESUME
    usage = (read_history(context.folder.path).usage if is_resumed else None) or {}
    before = sum(count for kind, count in usage.items() if kind.endswith("_tokens"))
    limit = config.max_tokens_total
    if limit is not None and before >= limit:
        raise InputError(
            f"the run has used {round(before):,} tokens, and max_tokens_total={limit} are allowed; set more to go on"
        )
    return TokenMeter(
        before=before,
        limit=limit,
        on_limit=context.interrupt.end,
        report=lambda counted: context.telemetry.event(events.RUN_USAGE, metrics=counted),
    )


def is_metered(config: TrainingSettings, service: ServiceClient) -> bool:
    """True if the run counts by itself what goes to a service."""
    is_asked = config.max_tokens_total is not None or config.price_per_million is not None
    return is_asked or bool(getattr(service, "is_hosted", False))
