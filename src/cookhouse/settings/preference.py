"""Settings of runs that learn from preferences."""

import chz

from cookhouse.settings.checks import above, at_least, from_to_below
from cookhouse.settings.defaults import Default, computed, redefault
from cookhouse.settings.preference_model import JudgeSettings
from cookhouse.settings.reading import narrowed, read_if
from cookhouse.settings.rows import RowSettings
from cookhouse.settings.training import TrainingSettings

_WITHOUT_GAMMA = ("dpo", "dpo_norm", "ipo", "kto", "orpo")
_WITHOUT_REFERENCE = ("orpo", "simpo")


@chz.chz
class PairLossSettings:
    """A loss over pairs of answers."""

    loss_fn: str = chz.field(
        default="dpo", doc="dpo, dpo_norm, ipo, kto, orpo or simpo, or your own as module:name or file.py:name."
    )
    dpo_beta: float = computed(
        Default(lambda config: 2.0 if config.loss_fn == "simpo" else 0.1, "2.0 with simpo, else 0.1"),
        float,
        "β: how much a difference from the reference counts; λ of orpo.",
        above(0, "0.1"),
    )
    label_smoothing: float = chz.field(
        default=0.0,
        doc="Share of labels taken to be wrong, below 0.5: conservative DPO.",
        validator=[
            from_to_below(0, 0.5, "0.1"),
            read_if(lambda config: config.loss_fn not in ("ipo", "kto"), "by other losses than ipo and kto", idle=[0]),
        ],
    )
    simpo_gamma: float = chz.field(
        default=1.0,
        doc="γ of simpo: what the chosen answer's reward is to be ahead by.",
        validator=[at_least(0), read_if(lambda config: config.loss_fn not in _WITHOUT_GAMMA, "by loss_fn=simpo")],
    )


@chz.chz
class ReferenceSettings:
    """What answers are compared with."""

    reference_model: str | None = chz.field(
        default=None,
        doc="Base model, tinker:// path or run folder whose logprobs are the reference; default: the weights that the "
        "run began with.",
    )
    cache_reference: bool = chz.field(
        default=True, doc="Keep the reference's logprobs in the run folder, and ask for those of a pair only once."
    )


_WITH_REFERENCE = read_if(
    lambda config: config.loss_fn not in _WITHOUT_REFERENCE, "by losses that need a reference, as dpo, ipo and kto"
)


@chz.chz
class PreferenceSettings(TrainingSettings, RowSettings, PairLossSettings, ReferenceSettings, JudgeSettings):
    """What a run over pairs is told."""

    eval_max_tokens: int = redefault(
        RowSettings,
        "eval_max_tokens",
        Default(lambda config: 64 if config.preference_model is None else 256, "64, or 256 with preference_model"),
    )

    reference_model: str | None = narrowed(ReferenceSettings, "reference_model", _WITH_REFERENCE)
    cache_reference: bool = narrowed(ReferenceSettings, "cache_reference", _WITH_REFERENCE)
    batch_size: int = chz.field(default=256, doc="Pairs per step.", validator=at_least(1))
    max_length: int = redefault(RowSettings, "max_length", 8192)
