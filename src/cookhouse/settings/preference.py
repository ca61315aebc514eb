"""Settings of runs that learn from preferences."""

from collections.abc import Callable, Collection
from typing import Any

import chz

from cookhouse.losses.pair_losses import BOUNDS, BUILT_IN_PAIR_LOSSES, DEFAULT_BETA, OPTIONS, PAIR_LOSSES, PairLoss
from cookhouse.naming import listed
from cookhouse.settings.checks import at_least, bounded
from cookhouse.settings.defaults import Default, computed, redefault
from cookhouse.settings.facts import Alias, NamesWeights, facts
from cookhouse.settings.judge import WITH_HELD_OUT
from cookhouse.settings.preference_model import JudgeSettings
from cookhouse.settings.reading import ReadIf, narrowed, read_if
from cookhouse.settings.rows import RowSettings
from cookhouse.settings.training import TrainingSettings


def _loss(config: Any) -> PairLoss:
    return PAIR_LOSSES.find(config.pair_loss)


def _read_with(is_read: Callable[[PairLoss], bool], *, idle: Collection[Any] = ()) -> ReadIf:
    """A setting that some losses read; a function of a user's own is taken to read all."""
    names = listed(name for name, loss in BUILT_IN_PAIR_LOSSES.items() if is_read(loss))
    return read_if(lambda config: is_read(_loss(config)), f"by pair_loss={names}", idle=idle)


_BETAS = ", ".join(
    f"{loss.default_beta} with {name}"
    for name, loss in BUILT_IN_PAIR_LOSSES.items()
    if loss.default_beta != DEFAULT_BETA
)


@chz.chz
class PairLossSettings:
    """A loss over pairs of answers."""

    help_title = "Loss over pairs"

    pair_loss: str = chz.field(
        default="dpo",
        doc=f"{listed(BUILT_IN_PAIR_LOSSES, 'or')}, or your own as module:name or file.py:name.",
        metadata=facts(aliases=(Alias(name="loss_type", doc="TRL"),)),
    )
    dpo_beta: float = computed(
        Default(lambda config: _loss(config).default_beta, f"{_BETAS}, else {DEFAULT_BETA}"),
        float,
        "β: how much a difference from the reference counts; λ of orpo.",
        bounded(BOUNDS["dpo_beta"]),
        metadata=facts(aliases=(Alias(name="beta", doc="TRL"),)),
    )
    label_smoothing: float = chz.field(
        default=OPTIONS["label_smoothing"],
        doc="Share of labels taken to be wrong, below 0.5: conservative DPO.",
        validator=[
            bounded(BOUNDS["label_smoothing"]),
            _read_with(lambda loss: "label_smoothing" in loss.reads, idle=[0]),
        ],
    )
    simpo_gamma: float = chz.field(
        default=OPTIONS["simpo_gamma"],
        doc="γ of simpo: what the chosen answer's reward is to be ahead by.",
        validator=[bounded(BOUNDS["simpo_gamma"]), _read_with(lambda loss: "simpo_gamma" in loss.reads)],
    )


_WITH_REFERENCE = _read_with(lambda loss: loss.needs_reference)


@chz.chz
class ReferenceSettings(PairLossSettings):
    """A loss over pairs of answers, and the reference that they are compared with."""

    help_title = "Loss over pairs"

    reference_model: str | None = chz.field(
        default=None,
        doc="Base model, tinker:// path or run directory whose logprobs are the reference; default: the weights that "
        "the run began with.",
        validator=_WITH_REFERENCE,
        metadata=facts(
            weights=NamesWeights(in_own_format=True),
            aliases=(Alias(name="reference_model_name", doc="tinker-cookbook"),),
        ),
    )
    cache_reference: bool = chz.field(
        default=True,
        doc="Keep the reference's logprobs in the run directory, and ask for those of a pair only once.",
        validator=_WITH_REFERENCE,
    )


@chz.chz
class PreferenceSettings(TrainingSettings, RowSettings, ReferenceSettings, JudgeSettings):
    """Settings of a run over pairs."""

    help_title = "Loss over pairs"

    preference_model: str | None = narrowed(JudgeSettings, "preference_model", WITH_HELD_OUT)
    eval_max_tokens: int = redefault(
        RowSettings,
        "eval_max_tokens",
        Default(lambda config: 64 if config.preference_model is None else 256, "64, or 256 with preference_model"),
    )

    batch_size: int = chz.field(default=256, doc="Pairs per step.", validator=at_least(1))
    max_length: int = redefault(RowSettings, "max_length", 8192)
