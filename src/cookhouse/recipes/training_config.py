"""Settings that every training recipe has, and how they are decided and checked."""

import math
from collections.abc import Callable, Mapping
from datetime import datetime
from itertools import chain, count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import chz

from cookhouse.assets import TINY_MODEL
from cookhouse.catalog import default_renderer
from cookhouse.errors import InputError, UnknownNameError
from cookhouse.schedules import SCHEDULES

if TYPE_CHECKING:
    from cookhouse.workflows import FolderSpec

SERVICE_PATIENCE_SECONDS = 300.0
WEIGHTS_FIELDS = ("load_checkpoint_path", "kl_reference", "answerer_model")
"""Fields of configs that may name weights."""


@chz.chz
class TrainingConfig:
    """Settings of a training run. None means: chosen by `resolve`, in the way the field says."""

    model_name: str = chz.field(
        default=TINY_MODEL, doc="Base model: cookhouse/tiny, a hub id or a folder that the service knows."
    )
    renderer_name: str | None = chz.field(default=None, doc="Chat format; default: the model's own.")
    force_renderer: bool = chz.field(default=False, doc="Take a renderer that does not fit the model.")
    learning_rate: float | None = chz.field(default=None, doc="Peak learning rate; default: the recipe's.")
    lr_schedule: str = chz.field(
        default="linear", doc="constant, linear, cosine, warmup_linear or warmup_cosine, over all steps."
    )
    warmup_steps: int = chz.field(default=0, doc="Steps of warm-up, for the two schedules that have it.")
    weight_decay: float = chz.field(default=0.0, doc="Of AdamW, decoupled: lr times this part of a weight goes.")
    grad_clip_norm: float = chz.field(default=0.0, doc="Norm that the gradient of a step is cut to; 0: it is not.")
    num_epochs: int = chz.field(default=1, doc="Passes over the data, reshuffled each time.")
    max_steps: int | None = chz.field(default=None, doc="Stop after this many steps; default: all epochs.")
    lora_rank: int = chz.field(
        default=32, doc="Rank of the LoRA adapter; 0 trains all weights, on cookhouse's own engine."
    )
    train_mlp: bool = chz.field(default=True, doc="Adapt the MLPs, experts included.")
    train_attn: bool = chz.field(default=True, doc="Adapt the attention.")
    train_unembed: bool = chz.field(default=True, doc="Adapt the output layer.")
    seed: int = chz.field(default=0, doc="Seed of the data order, of the adapter and of sampling.")
    save_every: int = chz.field(default=20, doc="Steps between checkpoints; 0: only the last.")
    eval_every: int = chz.field(default=0, doc="Steps between evaluations; 0: only before and after.")
    num_eval: int = chz.field(default=100, doc="Held-out problems to evaluate on; 0: none.")
    num_samples: int = chz.field(default=3, doc="Answers shown before and after.")
    log_path: str | None = chz.field(default=None, doc="Run folder; default: a new one under runs/.")
    load_checkpoint_path: str | None = chz.field(
        default=None, doc="Weights to start from, with a fresh optimizer: a tinker:// path, or a run folder."
    )
    behavior_if_log_dir_exists: Literal["ask", "delete", "raise", "resume"] = chz.field(
        default="ask", doc="What to do when the run folder exists: ask, delete, raise or resume."
    )
    base_url: str | None = chz.field(
        default=None, doc="Address of the training service; default: TINKER_BASE_URL, else the embedded engine."
    )
    service_patience_seconds: float = chz.field(
        default=SERVICE_PATIENCE_SECONDS, doc="Seconds without an answer of the service after which a run ends."
    )
    ttl_seconds: int | None = chz.field(
        default=None, doc="Seconds after which the service may delete periodic checkpoints; default: never."
    )


C = TypeVar("C", bound=TrainingConfig)

FREE_ON_RESUME = frozenset(
    {
        "base_url",
        "behavior_if_log_dir_exists",
        "eval_every",
        "log_path",
        "num_samples",
        "save_every",
        "service_patience_seconds",
        "ttl_seconds",
    }
)
"""Fields that do not change what is trained, so that a resumed run may set them anew."""

_AT_LEAST = {
    "num_epochs": 1,
    "max_steps": 1,
    "lora_rank": 0,
    "warmup_steps": 0,
    "seed": 0,
    "save_every": 0,
    "eval_every": 0,
    "num_eval": 0,
    "num_samples": 0,
    "ttl_seconds": 3600,
}


def decide(config: C, recipe: str, **otherwise: Any) -> C:
    """The config with defaults in place of None: those given here by field, then the model's renderer and a new folder.

    Raises:
        InputError: a value that every recipe has is out of range.
    """
    chosen = {name: value for name, value in otherwise.items() if getattr(config, name) is None}
    chosen.setdefault("renderer_name", config.renderer_name or default_renderer(config.model_name))
    chosen.setdefault("log_path", config.log_path or new_log_path(recipe))
    decided: C = chz.replace(config, **chosen)
    check_at_least(decided, _AT_LEAST)
    rate = decided.learning_rate
    if rate is None or not (math.isfinite(rate) and rate > 0):
        raise InputError(f"learning_rate is {rate}; it must be a positive number, such as 2e-4")
    check_update(decided)
    if decided.lr_schedule not in SCHEDULES:
        raise UnknownNameError("lr_schedule", decided.lr_schedule, SCHEDULES)
    check_patience(decided.service_patience_seconds)
    return decided


def check_patience(seconds: float) -> None:
    """Refuse a `service_patience_seconds` that is no time."""
    if not (math.isfinite(seconds) and seconds > 0):
        raise InputError(f"service_patience_seconds is {seconds}; it must be a positive number, such as 300")


MAY_BE_0 = ("weight_decay", "grad_clip_norm")
"""Numbers of every recipe that turn something off at 0."""


def check_update(config: Any) -> None:
    """Refuse a decay or a clipping that is out of range, nothing to train, and a part left out of all weights."""
    for name in MAY_BE_0:
        value = getattr(config, name)
        if not 0 <= value < math.inf:
            raise InputError(f"{name} is {value}; it must be a number and not negative")
    adapted = (config.train_mlp, config.train_attn, config.train_unembed)
    if not any(adapted):
        raise InputError("train_mlp, train_attn and train_unembed are all false; at least one must be true")
    if config.lora_rank == 0 and not all(adapted):
        raise InputError(
            "lora_rank=0 trains all weights, and one of train_mlp, train_attn and train_unembed is false; set a rank, "
            "or leave them true"
        )


def check_at_least(config: TrainingConfig, least_by_name: Mapping[str, int]) -> None:
    """Refuse fields that are set and below the least that makes sense."""
    for name, least in least_by_name.items():
        value = getattr(config, name)
        if value is not None and value < least:
            raise InputError(f"{name} is {value}; it must be at least {least}")


def common_plan(
    config: TrainingConfig, recipe: str, ask: Callable[[str], str] | None, data: Mapping[str, str | Path | None]
) -> dict[str, Any]:
    """The fields of a `TrainingPlan` from a decided config; `data` has the files that it reads, by what for."""
    from cookhouse.training import Cadence, weights_path

    start = config.load_checkpoint_path
    return {
        "folder": _folder_spec(config, recipe, ask, {name: Path(path) for name, path in data.items() if path}),
        "cadence": Cadence(save_every=config.save_every, eval_every=config.eval_every),
        "load_checkpoint_path": None if start is None else weights_path(start, purpose="training"),
        **{
            name: getattr(config, name)
            for name in (
                "model_name",
                "renderer_name",
                "force_renderer",
                "num_epochs",
                "max_steps",
                "learning_rate",
                "lr_schedule",
                "warmup_steps",
                "weight_decay",
                "grad_clip_norm",
                "lora_rank",
                "train_mlp",
                "train_attn",
                "train_unembed",
                "seed",
                "ttl_seconds",
            )
        },
    }


def _folder_spec(
    config: TrainingConfig, recipe: str, ask: Callable[[str], str] | None, data: Mapping[str, Path]
) -> "FolderSpec":
    from cookhouse.workflows import FolderSpec

    assert config.log_path is not None
    return FolderSpec(
        path=Path(config.log_path),
        recipe=recipe,
        config=chz.asdict(config),
        seed=config.seed,
        behavior=config.behavior_if_log_dir_exists,
        free_fields=FREE_ON_RESUME,
        data=data,
        ask=ask,
    )


def new_log_path(recipe: str) -> str:
    """A folder under runs/ that does not exist yet."""
    first = f"runs/{recipe}-{datetime.now().strftime('%Y%m%d-%H%M%S')}"
    candidates = chain([first], (f"{first}-{number}" for number in count(2)))
    return next(path for path in candidates if not Path(path).exists())
