"""Settings of what a run may spend: tokens, and their price."""

import math
from collections.abc import Mapping

import chz

from cookhouse.errors import InputError
from cookhouse.naming import names_in
from cookhouse.settings.checks import at_least
from cookhouse.settings.facts import facts

PRICED = {"train": ("trained_tokens",), "sample": ("sampled_tokens",), "prefill": ("prompt_tokens", "scored_tokens")}
"""What a price may be of, and the tokens that it is asked for, as a run counts them."""


def prices_in(text: str) -> dict[str, float]:
    """The price of a million tokens by kind of `PRICED`: one number is that of all kinds.

    Raises:
        InputError: it is neither a number nor numbers by kind.
    """
    if ":" not in text:
        return dict.fromkeys(PRICED, _price(text, text))
    pairs = [part.partition(":") for part in names_in(text)]
    kinds = [kind.strip() for kind, _, _ in pairs]
    if (wrong := next((kind for kind in kinds if kind not in PRICED or kinds.count(kind) > 1), None)) is not None:
        why = "is there twice" if wrong in PRICED else "is no kind of tokens"
        raise InputError(f"price_per_million={text}: {wrong!r} {why}; write one number, or some of {_EXAMPLE}")
    return {kind: _price(price, text) for kind, (_, _, price) in zip(kinds, pairs, strict=True)}


_EXAMPLE = "train:1.2,sample:0.9,prefill:0.4"


def _price(word: str, text: str) -> float:
    try:
        price = float(word)
    except ValueError:
        price = math.nan
    if not (math.isfinite(price) and price >= 0):
        raise InputError(
            f"price_per_million={text}: {word.strip()!r} is no price; write a number from 0 on, such as 1.2, or "
            f"numbers by kind, such as {_EXAMPLE}"
        )
    return price


def _is_price(config: object, field: str) -> None:
    text = getattr(config, field)
    if text is not None:
        prices_in(text)


@chz.chz
class SpendingSettings:
    """Limits on the spending of a run."""

    help_title = "Run"

    max_tokens_total: int | None = chz.field(
        default=None,
        doc="End the run at its next step once so many tokens were trained, scored, prompted and sampled, those before "
        "a resume included. Default: never.",
        validator=at_least(1),
        metadata=facts(free_on_resume=True),
    )
    price_per_million: str | None = chz.field(
        default=None,
        doc="Price of a million tokens, in any unit, by which a run says what it costs: a number, or some of "
        f"{_EXAMPLE}; prefill: of prompts and of what is scored. Default: on the hosted "
        "service what that takes, else no cost is told.",
        validator=_is_price,
        metadata=facts(free_on_resume=True, is_list=True),
    )

    @property
    def prices(self) -> Mapping[str, float]:
        """By kind of `PRICED`; none where no price is given."""
        return {} if self.price_per_million is None else prices_in(self.price_per_million)
