"""Runs of tokens as plain values for a page and its JSON: spans with their classes, and the scales of the page."""

from collections.abc import Mapping, Sequence
from typing import Any

from cookhouse.report.token_colors import ColorScale, Quantity
from cookhouse.report.token_spans import TokenRun, token_spans
from cookhouse.view.tokens.words import Words

_TITLES: Mapping[Quantity, str] = {
    Quantity.ADVANTAGE: "advantage that the token was trained with",
    Quantity.WEIGHT: "loss weight",
    Quantity.GAP: "gap: logprob of the sampler less that of the trainer, in nats",
    Quantity.TEACHER: "logprob of the teacher less that of the trainer, in nats",
}


def shown_spans(run: TokenRun, words: Words, scales: Mapping[Quantity, ColorScale]) -> list[dict[str, Any]]:
    """The spans of a run, each with its text, ids, values, classes, and all of that in words."""
    return [
        {
            "text": span.text,
            "position": span.position,
            "ids": list(span.ids),
            "values": {name.value: list(each) for name, each in span.values.items()},
            "classes": span.classes(scales),
            "told": span.told,
        }
        for span in token_spans(run, words.wording)
    ]


def shown_scales(
    scales: Mapping[Quantity, ColorScale], missing: Mapping[Quantity, str], *, logprob: str
) -> list[dict[str, Any]]:
    """Quantities by which tokens can be colored, in the order of the keys 1 to 5: each with its shades, or why it is
    not there. A teacher is named only where there is one. `logprob` says whose those are.
    """
    titles = {**_TITLES, Quantity.LOGPROB: f"logprob in nats: {logprob}"}
    return [
        {
            "quantity": quantity.value,
            "key": key,
            "title": titles[quantity],
            "shades": [{"classes": name, "label": label} for name, label in scales[quantity].steps]
            if quantity in scales
            else [],
            "missing": "" if quantity in scales else missing.get(quantity, "no token here has one"),
        }
        for key, quantity in enumerate(Quantity, start=1)
        if quantity in scales or quantity is not Quantity.TEACHER
    ]


def first_shown(scales: Mapping[Quantity, ColorScale], asked: str) -> str:
    """Quantity by which tokens are colored at first: the one asked for, if it is there."""
    names = [quantity.value for quantity in Quantity if quantity in scales]
    return asked if asked in names or not names else names[0]


def quantity_names() -> Sequence[str]:
    """The values of `by` in an address."""
    return [quantity.value for quantity in Quantity]
