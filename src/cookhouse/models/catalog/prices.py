"""Prices of the hosted service, in US dollars for a million tokens: as it publishes them, else as they were read."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cookhouse.models.names import plain_name

ADDRESS = "https://tinker-docs.thinkingmachines.ai/tinker/models.json"
AS_OF = "2026-10"
"""When the table was read."""


@dataclass(frozen=True, kw_only=True)
class Prices:
    """Of a model, by kind of `cookhouse.settings.spending.PRICED`, and where they come from, in words."""

    by_kind: Mapping[str, float]
    source: str

    @property
    def text(self) -> str:
        """As `price_per_million` takes them."""
        return ",".join(f"{kind}:{price:g}" for kind, price in self.by_kind.items())


def _row(prefill: float, sample: float, train: float | None = None) -> Mapping[str, float]:
    found = {"train": train, "sample": sample, "prefill": prefill}
    return {kind: price for kind, price in found.items() if price is not None}


_TABLE: Mapping[str, Mapping[str, float]] = {
    "Qwen3.5-4B": _row(0.33, 1.005, 0.737),
    "Qwen3.5-9B": _row(0.66, 1.995, 1.463),
    "Qwen3.5-9B-Base": _row(0.66, 1.995, 1.463),
    "Qwen3-8B": _row(0.195, 0.60, 0.44),
    "Qwen3.5-35B-A3B-Base": _row(0.54, 1.335, 1.177),
    "Qwen3.6-35B-A3B": _row(0.54, 1.335, 1.177),
    "Qwen3.8-27B": _row(1.86, 5.595, 4.103),
    "Qwen3.8-27B:peft:262144": _row(2.48, 7.46, 7.46),
    "Qwen3.5-397B-A17B": _row(3.00, 7.50, 6.60),
    "Qwen3.5-397B-A17B:peft:262144": _row(4.0, 10.0),
    "gpt-oss-20b": _row(0.18, 0.45, 0.396),
    "gpt-oss-120b": _row(0.33, 0.84, 0.737),
    "gpt-oss-120b:peft:131072": _row(0.78, 1.94),
    "DeepSeek-V3.1": _row(1.695, 4.215),
    "Kimi-K2.6": _row(2.205, 5.49),
    "Kimi-K2.6:peft:131072": _row(5.15, 12.81),
    "Nemotron-3-Nano-30B-A3B": _row(0.195, 0.495),
    "Nemotron-3-Super-120B": _row(0.57, 1.44, 1.276),
    "Nemotron-3-Ultra-550B": _row(2.49, 6.225, 5.478),
    "Nemotron-3.5-Lightning-30B": _row(0.195, 0.495),
    "GLM-5.3:peft:262144": _row(4.86, 12.15, 14.58),
    "Inkling": _row(1.87, 4.68, 5.61),
    "Inkling-Small": _row(0.58, 1.44, 1.73),
}
"""By the name after the organization."""


def table_prices(model: str) -> Prices | None:
    """Prices of a model in the table, by the context that it is rented out with; None: it is not there."""
    found = _TABLE.get(_own_name(model)) or _TABLE.get(_own_name(plain_name(model)))
    return None if found is None else Prices(by_kind=found, source=f"US dollars, as they were in {AS_OF}")


def published_prices(model: str, published: Any) -> Prices | None:
    """Prices of a model in the published list; None: none that can be read."""
    rows = [row for row in published if isinstance(row, dict)] if isinstance(published, list) else []
    named = {_own_name(row["tinker_id"]): row for row in rows if isinstance(row.get("tinker_id"), str)}
    row = named.get(_own_name(model)) or named.get(_own_name(plain_name(model)))
    if row is None:
        return None
    prices = {kind: _dollars(row.get(kind)) for kind in ("train", "sample", "prefill")}
    known = {kind: price for kind, price in prices.items() if price is not None}
    return Prices(by_kind=known, source=f"US dollars, by {ADDRESS}") if known else None


def _dollars(text: object) -> float | None:
    """Of a text such as "$1.87"; None: it is none."""
    if not isinstance(text, str | int | float) or isinstance(text, bool):
        return None
    try:
        price = float(str(text).strip().removeprefix("$").replace(",", ""))
    except ValueError:
        return None
    return price if math.isfinite(price) and price >= 0 else None


def _own_name(model: str) -> str:
    return model.rpartition("/")[2]
