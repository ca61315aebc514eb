"""Settings of every run that trains: of the model, the adapter, and the run itself."""

from collections.abc import Mapping
from typing import Any

import chz

from cookhouse.assets import TINY_MODEL
from cookhouse.errors import InputError
from cookhouse.models.catalog import default_renderer
from cookhouse.registry import check_name
from cookhouse.settings.checks import Checked, above, at_least, between
from cookhouse.settings.defaults import Default, always, computed, is_left_open
from cookhouse.settings.facts import Alias, NamesWeights, facts, named_weights
from cookhouse.settings.folder import FolderSettings
from cookhouse.settings.judge import judge_setting, named_evaluators
from cookhouse.settings.optimizer import OptimizerSettings
from cookhouse.settings.reading import narrowed, read_if
from cookhouse.settings.spending import SpendingSettings


def _names_a_model(config: Any, field: str) -> None:
    name = getattr(config, field)
    if name is not None:
        check_name(name)


def _names_weights_of_its_format(config: Any) -> bool:
    return any(named.known.in_own_format for named in named_weights(config))


@chz.chz
class ModelSettings:
    """Settings of the model, and of its chat format."""

    help_title = "Model"

    model_name: str = computed(
        always(TINY_MODEL),
        str,
        "Base model: a hub id, a folder or cookhouse/tiny.",
        metadata=facts(aliases=(Alias(name="base_model", doc="tinker-cookbook"), "model")),
    )
    renderer_name: str = computed(
        Default(lambda config: default_renderer(config.model_name), "the model's own"),
        str,
        "Chat format; default with load_checkpoint_path: that in which these weights were trained.",
    )
    force_renderer: bool = chz.field(
        default=False,
        doc="Take a renderer that does not fit the model, or weights trained in another.",
        validator=read_if(
            lambda config: not is_left_open(config, "renderer_name") or _names_weights_of_its_format(config),
            "with renderer_name, or with weights that may be of another format",
            idle=[False],
        ),
    )


@chz.chz
class SeedSettings:
    """Settings that chance depends on."""

    help_title = "Run"

    seed: int = chz.field(default=0, doc="Seed of data order, adapter and sampling.", validator=at_least(0))


def _metadata_is_free(config: Any, field: str) -> None:
    if "renderer_name" in (getattr(config, field) or {}):
        raise InputError("user_metadata has renderer_name, which every run tells by itself; set renderer_name instead")


@chz.chz
class AdapterSettings(ModelSettings, SeedSettings, Checked):
    """Settings of the weights that are trained."""

    help_title = "Model"

    train_mlp: bool = chz.field(default=True, doc="Adapt the MLPs, experts included.")
    train_attn: bool = chz.field(default=True, doc="Adapt the attention.")
    train_unembed: bool = chz.field(default=True, doc="Adapt the output layer.")

    lora_rank: int = chz.field(
        default=32,
        doc="Rank of the LoRA adapter; 0: train all weights. Only cookhouse's own engine trains all.",
        validator=at_least(0),
        metadata=facts(aliases=("rank",)),
    )
    user_metadata: Mapping[str, str] | None = chz.field(
        default=None,
        doc='What the service keeps with the trained model, as in {"team": "a"}; default: the renderer alone.',
        validator=_metadata_is_free,
        metadata=facts(free_on_resume=True),
    )

    @property
    def metadata(self) -> dict[str, str]:
        """The metadata of the model at the service. By its renderer, it is later asked."""
        return {**(self.user_metadata or {}), "renderer_name": self.renderer_name}

    @property
    def adapter_options(self) -> dict[str, Any]:
        """Arguments of `create_lora_training_client` besides the model."""
        names = ("seed", "train_mlp", "train_attn", "train_unembed")
        options = {name: getattr(self, name) for name in names}
        return {"rank": self.lora_rank, **options, "user_metadata": self.metadata}

    @chz.validate
    def _something_is_trained(self) -> None:
        adapted = (self.train_mlp, self.train_attn, self.train_unembed)
        if not any(adapted):
            raise InputError("train_mlp, train_attn and train_unembed are all false; at least one must be true")
        if self.lora_rank == 0 and not all(adapted):
            raise InputError(
                "lora_rank=0 trains all weights, and one of train_mlp, train_attn and train_unembed is false; set a "
                "rank, or leave them true"
            )


@chz.chz
class ShrinkSettings:
    """Settings of the share of the data that is taken: a run can be tried on little of it."""

    help_title = "Data"

    n_train_samples: int | None = chz.field(
        default=None,
        doc="Train on the first so many problems, or on the first so many rows of each data set; default: all.",
        validator=at_least(1),
    )
    n_batches: int | None = chz.field(
        default=None, doc="Batches in an epoch; default: as many as the data gives.", validator=at_least(1)
    )


_NUM_ROLLOUTS = Alias(
    name="num_rollouts",
    means=("max_steps", "num_epochs"),
    beside=("group_size",),
    # As many epochs as steps are enough for as many steps, however few problems there are.
    convert=lambda steps: {"max_steps": steps, "num_epochs": steps},
    doc="TinkexCookbook: exactly so many steps, each of groups_per_batch groups",
)


@chz.chz
class StepSettings:
    """Settings of a run's length, and of what happens along the way."""

    help_title = "Steps and checkpoints"

    num_epochs: int = chz.field(
        default=1,
        doc="Passes over the data.",
        validator=at_least(1),
        metadata=facts(aliases=("epochs", Alias(name="num_train_epochs", doc="TRL"))),
    )
    max_steps: int | None = chz.field(
        default=None,
        doc="Steps, at most; default: all epochs.",
        validator=at_least(1),
        metadata=facts(aliases=(_NUM_ROLLOUTS,)),
    )
    pause_at_step: int | None = chz.field(
        default=None,
        doc="Save and measure after this many steps, and leave the rest to a resume, which ends as if there had been "
        "no pause: schedules are those of all steps. Default: train to the end.",
        validator=at_least(1),
        metadata=facts(of_launch=True),
    )
    pause_metric: str | None = chz.field(
        default=None,
        doc="At pause_at_step, leave out evaluations that are known not to measure this: for test/nll the answers to "
        "held-out questions. Default: measure all.",
        validator=read_if(lambda config: config.pause_at_step, "with pause_at_step"),
        metadata=facts(of_launch=True),
    )
    save_every: int = chz.field(
        default=20,
        doc="Steps between checkpoints; 0: only the last.",
        validator=at_least(0),
        metadata=facts(free_on_resume=True),
    )
    ttl_seconds: int | None = chz.field(
        default=None,
        doc="Seconds after which the service may delete periodic checkpoints; default: never.",
        validator=[at_least(3600), read_if(lambda config: config.save_every, "with save_every above 0")],
        metadata=facts(free_on_resume=True),
    )
    rolling_save_every: int = chz.field(
        default=0,
        doc="Steps between rolling checkpoints, each of which takes the place of the one before; 0: none.",
        validator=at_least(0),
        metadata=facts(free_on_resume=True),
    )
    rolling_ttl_seconds: int = chz.field(
        default=604_800,
        doc="Seconds after which the service may delete a rolling checkpoint that a broken run left.",
        validator=[
            at_least(3600),
            read_if(lambda config: config.rolling_save_every, "with rolling_save_every above 0"),
        ],
        metadata=facts(free_on_resume=True),
    )
    num_shown_examples: int = chz.field(
        default=4,
        doc="Examples of each step that are kept, with the logprobs of their tokens, to be looked at; 0: none.",
        validator=between(0, 64),
        metadata=facts(free_on_resume=True),
    )


def _names_benchmarks(config: Any) -> bool:
    return bool(getattr(config, "benchmark", "") or (named_evaluators(config) and getattr(config, "num_eval", 1)))


@chz.chz
class BenchmarkDataSettings:
    """Settings of the sources of benchmarks."""

    help_title = "Evaluation"

    benchmark_data: str | None = chz.field(
        default=None,
        doc="Rows of the benchmarks: a file or hub id, a folder with a file for each, or NAME=FILE, separated by "
        "commas; default: each from where it is published.",
        validator=read_if(_names_benchmarks, "with a benchmark among evaluators or infrequent_evaluators"),
        metadata=facts(is_list=True),
    )


@chz.chz
class EvaluationSettings(BenchmarkDataSettings):
    """Settings of the measurements along the way, and their intervals."""

    help_title = "Evaluation"

    eval_every: int = chz.field(
        default=0,
        doc="Steps between evaluations; 0: only before and after.",
        validator=at_least(0),
        metadata=facts(free_on_resume=True),
    )
    eval_at_start: bool = chz.field(
        default=True,
        doc="Measure the weights that the run starts from, too.",
        metadata=facts(free_on_resume=True),
    )
    infrequent_eval_every: int = chz.field(
        default=0,
        doc="Steps between the evaluations of infrequent_evaluators; 0: only after.",
        validator=[
            at_least(0),
            read_if(lambda config: config.infrequent_evaluators, "with infrequent_evaluators", idle=[0]),
        ],
    )
    evaluators: str = chz.field(
        default="",
        doc="Further evaluators or benchmarks, separated by commas. By name, module:name, file.py:name or a "
        "file such as mine.jsonl.",
        metadata=facts(is_list=True),
    )
    infrequent_evaluators: str = chz.field(
        default="", doc="The same, every infrequent_eval_every steps.", metadata=facts(is_list=True)
    )
    judge: str | None = judge_setting()
    num_eval: int = chz.field(
        default=100,
        doc="Held-out problems to evaluate on; 0: none. Of each benchmark as many items.",
        validator=at_least(0),
    )
    num_samples: int = chz.field(
        default=3, doc="Answers shown before and after.", validator=at_least(0), metadata=facts(free_on_resume=True)
    )


@chz.chz
class BestSettings:
    """Settings for the choice of a run's best weights, and for an early end."""

    help_title = "Evaluation"

    keep_best: str | None = chz.field(
        default=None,
        doc="Metric that chooses the best weights, such as test/nll, or auto. auto: the held-out loss, or "
        "what tells most where that is not measured. The run's name then means these weights; default: "
        "the last.",
        validator=read_if(lambda config: config.eval_every, "with eval_every above 0"),
    )
    early_stopping_patience: int | None = chz.field(
        default=None,
        doc="End the run after so many evaluations in a row without an improvement of that metric; default: never.",
        validator=[at_least(1), read_if(lambda config: config.keep_best, "with keep_best")],
    )
    early_stopping_threshold: float = chz.field(
        default=0.0,
        doc="By how much the metric has to be better to count as an improvement.",
        validator=[
            at_least(0),
            read_if(lambda config: config.early_stopping_patience, "with early_stopping_patience"),
        ],
    )


@chz.chz
class RegistrationSettings:
    """Under which name the trained model is registered."""

    help_title = "Run"

    registered_model_name: str | None = chz.field(
        default=None,
        doc="Register the trained model as the next version of this name; default: it is not registered.",
        validator=_names_a_model,
        metadata=facts(free_on_resume=True),
    )


@chz.chz
class TimeSettings:
    """Limits on a run's time."""

    help_title = "Steps and checkpoints"

    max_minutes: float | None = chz.field(
        default=None,
        doc="Minutes after which the run saves and ends; default: none. It ends at its next step and says how "
        "to go on; each resume has as many again.",
        validator=above(0, "30"),
        metadata=facts(free_on_resume=True),
    )


@chz.chz
class HeadlineSettings:
    """The metric by which a run is told in one line."""

    help_title = "Evaluation"

    headline: str | None = chz.field(
        default=None,
        doc="Metric that lists, pages and the summary give first, such as test/nll; default: the most telling one of "
        "those measured.",
        metadata=facts(free_on_resume=True),
    )


@chz.chz
class RunSettings(ModelSettings, FolderSettings, SeedSettings, TimeSettings, HeadlineSettings):
    """Settings of every recipe."""


_OF_NEW_ADAPTER = read_if(
    lambda config: config.load_checkpoint_path is None,
    "without load_checkpoint_path, whose weights are trained as they were before",
)


@chz.chz
class TrainingSettings(
    RunSettings,
    AdapterSettings,
    OptimizerSettings,
    StepSettings,
    EvaluationSettings,
    BestSettings,
    RegistrationSettings,
    ShrinkSettings,
    SpendingSettings,
):
    """Settings of every recipe that trains."""

    help_title = "Model"

    train_mlp: bool = narrowed(AdapterSettings, "train_mlp", _OF_NEW_ADAPTER)
    train_attn: bool = narrowed(AdapterSettings, "train_attn", _OF_NEW_ADAPTER)
    train_unembed: bool = narrowed(AdapterSettings, "train_unembed", _OF_NEW_ADAPTER)
    load_checkpoint_path: str | None = chz.field(
        default=None,
        doc="Weights to start from: a tinker:// path, run directory or registered model. The optimizer starts "
        "anew; their chat format is the default of renderer_name.",
        metadata=facts(weights=NamesWeights(purpose="training", in_own_format=True)),
    )
