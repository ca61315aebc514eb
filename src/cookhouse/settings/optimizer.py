"""Settings of the optimizer: Adam, and its learning rate."""

from typing import Any, Literal

import chz

from cookhouse.losses.bounds import ADAM
from cookhouse.models.hyperparams import auto_lr
from cookhouse.settings.checks import above, at_least, bounded, one_of
from cookhouse.settings.defaults import Default, always, computed
from cookhouse.settings.facts import facts
from cookhouse.settings.reading import read_if
from cookhouse.settings.schedules import SCHEDULES

AUTO = "auto"
"""Of a learning rate."""


def rate(default: Default, doc: str, *checks: Any, metadata: dict[str, Any] | None = None) -> Any:
    """A learning rate, which may be set to `auto`: what its default says that this is, else `auto_lr` of the model and
    of what is trained of it.
    """
    names = {AUTO: lambda config, usual: auto_lr(config.model_name, usual, is_lora=config.lora_rank > 0)[0]}
    return computed(
        default if default.names else default.with_names(names),
        float | Literal["auto"],
        f"{doc}; auto: by the model. By its family and width, by reward by its width, where there is a rule for these; "
        "else the default.",
        [above(0, "2e-4"), bounded(ADAM["learning_rate"]), *checks],
        metadata=metadata,
    )


def _warms_up(config: Any) -> bool:
    return bool(config.lr_schedule.startswith("warmup_"))


@chz.chz
class AdamSettings:
    """Adam, but for its peak learning rate."""

    help_title = "Optimizer"

    lr_schedule: str = chz.field(
        default="linear",
        doc="Schedule: constant, linear, cosine, warmup_linear or warmup_cosine.",
        validator=one_of("lr_schedule", SCHEDULES),
    )
    warmup_steps: int | None = chz.field(
        default=None,
        doc="Steps of warm-up, for the two schedules that have it; default: a tenth of all steps.",
        validator=[
            at_least(0),
            read_if(_warms_up, "with lr_schedule=warmup_linear or warmup_cosine", idle=[0]),
        ],
    )
    weight_decay: float = chz.field(
        default=0.0,
        doc="Of AdamW, decoupled: lr times this part of a weight goes.",
        validator=bounded(ADAM["weight_decay"]),
    )
    grad_clip_norm: float = chz.field(
        default=0.0,
        doc="Norm that the gradient of a step is cut to; 0: it is not.",
        validator=bounded(ADAM["grad_clip_norm"]),
    )


@chz.chz
class OptimizerSettings(AdamSettings):
    """Adam, and its learning rate over the steps of a run."""

    help_title = "Optimizer"

    learning_rate: float = rate(always(2e-4), "Peak learning rate", metadata=facts(aliases=("lr",)))
