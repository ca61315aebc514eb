"""Choice among several renderers of the one that writes what a model's own chat template writes."""

from dataclasses import dataclass
from functools import cache
from pathlib import Path

from cookhouse.errors import InputError
from cookhouse.models.catalog.families import TEMPLATE
from cookhouse.models.tokenizers import get_tokenizer


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitting:
    """The renderer that fits a model."""

    renderer: str
    why_template: str = ""
    """Where it is `template` and a renderer of the model's kind has its tokens: where that one writes otherwise."""


@cache
def fitting_renderer(folder: Path, candidates: tuple[str, ...]) -> Fitting:
    """The first candidate that writes a few conversations as the folder's chat template does, else `template`.

    Raises:
        InputError: the folder's tokenizer or its chat template cannot be read.
    """
    if not candidates:
        return Fitting(renderer=TEMPLATE)
    from cookhouse.chat import get_renderer  # loads the SDK
    from cookhouse.chat.checks import difference_from_template

    tokenizer = get_tokenizer(str(folder), download=False)
    reasons = []
    for name in candidates:
        try:
            renderer = get_renderer(name, tokenizer)
        except InputError:  # it writes tokens that this tokenizer lacks
            continue
        difference = difference_from_template(renderer)
        if difference is None:
            return Fitting(renderer=name)
        reasons.append(f"{name} would write another format ({difference})")
    return Fitting(renderer=TEMPLATE, why_template=next(iter(reasons), ""))
