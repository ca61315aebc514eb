"""Notes and facts on the settings of a run: rate, chat format, length, model, adapter; and figures of its result."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import chz

from cookhouse.errors import InputError
from cookhouse.models.catalog import FAMILIES, TEMPLATE, dims, family_of, why_template
from cookhouse.models.hyperparams import auto_lr, lora_parameter_count, rate_notes
from cookhouse.models.serving import serving_note
from cookhouse.runs import Figure
from cookhouse.settings import TrainingSettings
from cookhouse.settings.defaults import default_of, given, has_default
from cookhouse.settings.optimizer import AUTO
from cookhouse.settings.rates import RateDefault
from cookhouse.telemetry import ResultNote

_BYTES_PER_PARAMETER = 16
"""Weight, gradient and two Adam moments, four bytes each."""

Row = Mapping[str, Any]


class LengthConfig(Protocol):
    """Settings that `steps_notes` reads."""

    @property
    def max_steps(self) -> int | None: ...
    @property
    def num_epochs(self) -> int: ...


def steps_notes(config: LengthConfig, steps_per_epoch: int) -> list[str]:
    """Note on the setting of a run's length that changes nothing, where somebody set it."""
    steps, epochs = config.max_steps, config.num_epochs
    if steps is None:
        return []
    if steps > steps_per_epoch * epochs and not has_default(config, "max_steps"):
        return [
            f"max_steps={steps:,} changes nothing: num_epochs={epochs} ends after {steps_per_epoch * epochs:,} steps"
        ]
    # As many epochs as steps are there for the steps, however little data there is.
    if steps <= steps_per_epoch * (epochs - 1) and epochs != steps and not has_default(config, "num_epochs"):
        return [
            f"num_epochs={epochs} changes nothing: max_steps={steps:,} ends in epoch {-(-steps // steps_per_epoch)}, "
            f"and each has {steps_per_epoch:,} steps"
        ]
    return []


class RatedConfig(Protocol):
    """Settings that `settings_notes` reads."""

    @property
    def model_name(self) -> str: ...
    @property
    def renderer_name(self) -> str: ...
    @property
    def learning_rate(self) -> float: ...
    @property
    def lora_rank(self) -> int: ...


def settings_notes(config: RatedConfig, *, by_reward: bool = False) -> list[str]:
    """Notes for a person on settings that are not refused."""
    rates = rate_notes(config.model_name, config.learning_rate, is_lora=config.lora_rank > 0, by_reward=by_reward)
    return [
        *_renderer_notes(config),
        *_rate_source_notes(config),
        *map(ResultNote, rates),
    ]


def _rate_source_notes(config: RatedConfig) -> list[str]:
    """Note on the source of the learning rate, if it is to be found out."""
    default = chz.chz_fields(config)["learning_rate"]._munger
    if isinstance(default, RateDefault):
        note = default.note(config)
        return [] if note is None else [note]
    if given(config, "learning_rate") != AUTO:
        return []
    return [auto_lr(config.model_name, default_of(config, "learning_rate"), is_lora=config.lora_rank > 0)[1]]


def _renderer_notes(config: RatedConfig) -> list[str]:
    if config.renderer_name != TEMPLATE:
        return []
    family = _family(config.model_name)
    if why := _why_template(config.model_name):
        reason = f": {why}"
    elif family is None or not FAMILIES[family].renderers:
        reason = f"; the table knows no renderer for {family or config.model_name}"
    else:
        reason = ""
    return [f"renderer: {TEMPLATE} (the model's own chat template{reason})"]


def model_fact(model: str) -> str:
    """Kind of the model, and its sizes as far as they are known."""
    sizes = dims(model)
    parts = [f"family {_family(model) or 'unknown'}"]
    if sizes is not None:
        depth = "" if sizes.num_layers is None else f"{sizes.num_layers:,} layers, "
        parts.append(f"{depth}width {sizes.hidden_size:,}")
        if sizes.num_experts is not None:
            parts.append(f"{sizes.num_experts:,} experts")
        if sizes.vocab_size is not None:
            parts.append(f"vocabulary of {sizes.vocab_size:,} tokens")
    return ", ".join(parts)


def _family(model: str) -> str | None:
    try:
        return family_of(model)
    except InputError:  # a renderer was forced on a model whose files are on another machine
        return None


def _why_template(model: str) -> str:
    try:
        return why_template(model)
    except InputError:  # as above
        return ""


def context_fact(context_tokens: int | None) -> str:
    """Length of the sequences that the model takes."""
    if context_tokens is None:
        return "unknown here; the service will say, before anything is trained"
    return f"{context_tokens:,} tokens, prompt and answer together"


def adapter_size(config: TrainingSettings) -> str:
    """Parameters of an adapter, and the memory that it takes at the service."""
    if config.lora_rank == 0:
        return "none: all weights of the model are trained"
    try:
        parameters = lora_parameter_count(
            config.model_name,
            config.lora_rank,
            train_attn=config.train_attn,
            train_mlp=config.train_mlp,
            train_unembed=config.train_unembed,
        )
    except InputError as error:  # the weights are with the service, on another machine
        return f"size unknown: {error}"
    num_bytes = parameters * _BYTES_PER_PARAMETER
    return f"{parameters:,} parameters, {num_bytes / 1e6:,.1f} MB with gradient and optimizer state"


def serving_fact(config: TrainingSettings) -> Mapping[str, str]:
    """A line on serving the adapter with other programs, where the settings decide on it; else nothing."""
    note = serving_note(rank=config.lora_rank, train_unembed=config.train_unembed)
    return {} if note is None else {"serving": note}


def held_out_figures(labels: Sequence[tuple[str, str, bool]], first: Row, after: Row) -> list[Figure]:
    """Figures of held-out metrics before and after training: the name, label, and True for a share, of each."""
    return [
        Figure(
            name=name,
            label=label,
            before=first.get(name),
            after=after.get(name),
            is_share=is_share,
            stderr=after.get(f"{name}_stderr"),
            n=after.get(f"{name}_n"),
        )
        for name, label, is_share in labels
    ]


def trained_figure(name: str, label: str, first: Row, last: Row) -> Figure:
    """Figure of a metric of training, at the first and the last step."""
    return Figure(name=name, label=f"{label}, first and last", before=first.get(name), after=last.get(name))
