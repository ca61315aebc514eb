"""Logits of a model from the products of its output projection: by a factor, a bound, or as they are.

Families name these options alike and mean different things by them, so they are read by a table of families, each as
its forward in `transformers` computes it.

Legend: C positions, V vocabulary.
"""

import math
from dataclasses import asdict, dataclass
from typing import Any

from torch import Tensor

from cookhouse.engine.model.softcap import softcap_, softcap_slope
from cookhouse.engine.model.text_part import text_config
from cookhouse.errors import InputError


@dataclass(frozen=True, slots=True)
class LogitRule:
    """Logits are cap · tanh(factor · x / cap) of the products x, or factor · x without a cap."""

    factor: float = 1.0
    cap: float | None = None

    def apply_(self, logits_CV: Tensor) -> None:
        """Make logits of products, in their place."""
        if self.factor != 1.0:
            logits_CV.mul_(self.factor)
        if self.cap is not None:
            softcap_(logits_CV, self.cap)

    def slope(self, logits_CV: Tensor) -> Tensor | float:
        """Derivative of each logit by its product, from the logit."""
        return self.factor if self.cap is None else softcap_slope(logits_CV, self.cap).mul_(self.factor)


PLAIN = LogitRule()
"""Logits are the products."""


@dataclass(frozen=True, slots=True)
class _Options:
    """Names of what a family's config says; None: it says no such thing."""

    factor: str | None = None
    divisor: str | None = None
    cap: str | None = None


_FACTOR = _Options(factor="logit_scale")
_DIVISOR = _Options(divisor="logits_scaling")
_CAP = _Options(cap="final_logit_softcapping")
_FAMILIES = {
    "cohere": _FACTOR,
    "cohere2": _FACTOR,
    "cohere2_moe": _FACTOR,
    "gemma2": _CAP,
    "gemma3_text": _CAP,
    "gemma4_text": _CAP,
    "granite": _DIVISOR,
    "granite_swa": _DIVISOR,
    "granitemoe": _DIVISOR,
    "granitemoe_swa": _DIVISOR,
    "granitemoeshared": _DIVISOR,
    "granitemoehybrid": _DIVISOR,
    "hyperclovax": _Options(factor="logits_scaling"),
    "minicpm3": _DIVISOR,
    "nanochat": _CAP,
    "vaultgemma": _CAP,
}
_UNUSED = {"gemma3": ("final_logit_softcapping",)}
"""Options of the text part that the forward of a model which takes images as well does not read."""
_KNOWN = ("final_logit_softcapping", "lm_head_multiplier", "logit_scale", "logits_scaling", "output_multiplier")
"""Options by which some family or other changes its logits."""


def logit_rule(config: Any) -> LogitRule:
    """Rule by which a model computes its logits, from its whole config.

    Raises:
        InputError: an option is set of which the table does not say what this family means by it, or to no number that
            can be computed with.
    """
    text, unused = text_config(config), _UNUSED.get(config.model_type, ())
    options = _FAMILIES.get(text.model_type, _Options())
    named = {kind: name for kind, name in asdict(options).items() if name is not None and name not in unused}
    for name in _KNOWN:
        if name not in (*named.values(), *unused) and getattr(text, name, None) not in (None, 1):
            raise InputError(
                f"it uses {name}, and what {text.model_type} means by that is not known here; use another model"
            )
    found = {kind: _positive(text, name) for kind, name in named.items()}
    return LogitRule((found.get("factor") or 1.0) / (found.get("divisor") or 1.0), found.get("cap"))


def _positive(config: Any, name: str) -> float | None:
    """An option, None where it is not set."""
    value = getattr(config, name, None)
    if value is None:
        return None
    if not (isinstance(value, int | float) and math.isfinite(value) and value > 0):
        raise InputError(f"its {name} is {value!r}; it must be a number above 0")
    return float(value)
