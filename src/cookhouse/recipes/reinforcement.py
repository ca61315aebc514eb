"""Settings that every reinforcement recipe has, and how they become a workflow. The recipes add their environments."""

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

import chz

from cookhouse.errors import InputError
from cookhouse.recipes.training_config import TrainingConfig, check_at_least, common_plan, decide

if TYPE_CHECKING:
    from cookhouse.rl import RLDatasetBuilder
    from cookhouse.telemetry import Telemetry
    from cookhouse.training import Connect, Interrupt, PolicyLoss
    from cookhouse.workflows import (
        DryRunReport,
        MakeData,
        OpenSampler,
        ReinforcementPlan,
        ReinforcementState,
        RunResult,
        Workflow,
    )


@chz.chz
class ReinforcementConfig(TrainingConfig):
    """Settings of a reinforcement run. None means: chosen by the recipe's `resolve`, in the way the field says."""

    batch_size: int | None = chz.field(default=None, doc="Groups per step; default: the recipe's.")
    group_size: int | None = chz.field(default=None, doc="Rollouts of each problem; default: the recipe's.")
    max_tokens: int | None = chz.field(default=None, doc="Tokens sampled in each turn; default: the recipe's.")
    temperature: float = chz.field(default=1.0, doc="Of sampling; at 1 the sampler's logprobs are the trainer's.")
    n_batches: int | None = chz.field(default=None, doc="Batches in an epoch; default: as many as the data gives.")
    n_train_samples: int | None = chz.field(default=None, doc="Problems to train on; default: all.")
    format_coef: float = chz.field(default=0.1, doc="Reward lost by an answer without the right form.")
    advantage: Literal["group_centered", "normalized", "leave_one_out", "gae"] | None = chz.field(
        default=None, doc="How rewards become advantages within a group; default: the recipe's, mostly group_centered."
    )
    gamma: float = chz.field(default=0.99, doc="Discount of later rewards, for gae.")
    gae_lambda: float = chz.field(default=0.95, doc="Weight of longer estimates, for gae.")
    remove_constant_reward_groups: bool = chz.field(default=False, doc="Leave out groups with one reward for all.")
    loss_fn: Literal["importance_sampling", "ppo", "cispo", "dro", "gspo"] | None = chz.field(
        default=None, doc="Loss of the service; default: the recipe's, mostly importance_sampling."
    )
    clip_low: float | None = chz.field(default=None, doc="Lower bound of the ratio, for ppo, cispo and gspo.")
    clip_high: float | None = chz.field(default=None, doc="Upper bound of the ratio, for ppo, cispo and gspo.")
    dro_beta: float | None = chz.field(default=None, doc="Weight of dro's quadratic term.")
    kl_coef: float = chz.field(default=0.0, doc="Penalty for leaving the reference; 0: none.")
    kl_gamma: float = chz.field(default=0.0, doc="Discount of later tokens' penalties; 0: each token has its own.")
    kl_reference: str | None = chz.field(
        default=None,
        doc="Reference of the penalty: a base model, a tinker:// path or a run folder; default: the base model.",
    )
    compute_post_kl: bool = chz.field(
        default=False, doc="Report how far each step moved the weights from its sampler; costs a pass over the batch."
    )
    num_substeps: int = chz.field(default=1, doc="Optimizer steps that a batch is divided among.")
    ppo_epochs: int | None = chz.field(
        default=None, doc="Times that a batch is trained on; default: the recipe's, mostly 1."
    )
    num_minibatches: int = chz.field(
        default=1, doc="Pieces of a batch; above 1, training starts on the groups that are ready."
    )
    max_steps_off_policy: int = chz.field(
        default=0, doc="Steps that rollouts may run ahead of training; 0: they never do."
    )
    max_concurrent_groups: int = chz.field(default=256, doc="Groups being rolled out at a time.")
    max_turns: int | None = chz.field(default=None, doc="Turns of an episode; default: the environment's end.")
    max_sequence_tokens: int | None = chz.field(
        default=None, doc="Tokens of an episode, prompts included; default: no limit."
    )
    rollout_attempts: int = chz.field(default=1, doc="Attempts at a rollout that fails.")
    min_group_members: int | None = chz.field(
        default=None, doc="Rollouts that a group cannot do without; default: all of them."
    )
    on_failed_group: Literal["stop", "skip"] = chz.field(
        default="stop", doc="Whether a group that fails ends the run or is left out of its step."
    )
    eval_temperature: float = chz.field(default=1.0, doc="Of sampling in evaluations; 0 is greedy.")

    @property
    def data_files(self) -> Mapping[str, str | None]:
        """Files of the user's own that problems are read from, by what for, in a recipe with these settings."""
        named = {"train": "dataset_path", "test": "test_path"}
        return {name: getattr(self, setting, None) for name, setting in named.items()}

    @property
    def env_settings(self) -> dict[str, Any]:
        """What every config of environments is told."""
        return {
            "model_name": self.model_name,
            "renderer_name": self.renderer_name,
            "force_renderer": self.force_renderer,
            "batch_size": self.batch_size,
            "group_size": self.group_size,
            "n_batches": self.n_batches,
            "n_train_samples": self.n_train_samples,
            "seed": self.seed,
        }


C = TypeVar("C", bound=ReinforcementConfig)

_DEFAULTS: Mapping[str, Any] = {"advantage": "group_centered", "loss_fn": "importance_sampling", "ppo_epochs": 1}
"""Of every recipe that does not say otherwise."""

_AT_LEAST = {
    "batch_size": 1,
    "group_size": 1,
    "max_tokens": 1,
    "num_substeps": 1,
    "ppo_epochs": 1,
    "num_minibatches": 1,
    "max_steps_off_policy": 0,
    "max_concurrent_groups": 1,
    "rollout_attempts": 1,
    "min_group_members": 1,
    "max_turns": 1,
    "max_sequence_tokens": 2,
}


def _check(config: ReinforcementConfig) -> None:
    """See that the settings that every recipe has make sense together.

    Raises:
        InputError: a value is out of range, or does not go with another.
    """
    check_at_least(config, _AT_LEAST)
    for name in ("temperature", "eval_temperature", "kl_coef", "kl_gamma", "format_coef"):
        if not 0 <= getattr(config, name) < math.inf:
            raise InputError(f"{name} is {getattr(config, name)}; it must be a number and not negative")
    for name in ("gamma", "gae_lambda", "kl_gamma"):
        if not 0 <= getattr(config, name) <= 1:
            raise InputError(f"{name} is {getattr(config, name)}; it must lie between 0 and 1")
    _check_steps(config)
    _check_groups(config)
    _check_loss(config)


def _check_steps(config: ReinforcementConfig) -> None:
    assert config.batch_size is not None
    pieces = config.num_minibatches * config.num_substeps
    if pieces > config.batch_size:
        raise InputError(
            f"num_minibatches={config.num_minibatches} times num_substeps={config.num_substeps} is more than "
            f"batch_size={config.batch_size}; a piece needs at least one group"
        )
    if config.num_minibatches > 1 and config.max_steps_off_policy > 0:
        raise InputError(
            "num_minibatches streams rollouts of the present weights and max_steps_off_policy lets them run ahead; "
            "set only one of the two"
        )


def _check_groups(config: ReinforcementConfig) -> None:
    size, least = config.group_size, config.min_group_members
    assert size is not None
    if config.temperature == 0:
        raise InputError("temperature is 0; rollouts of a group would all be the same, and nothing could be learned")
    if size == 1 and config.advantage != "gae" and not config.kl_coef:
        raise InputError(
            "group_size is 1; a rollout is compared with the others of its group, so that nothing could be learned; "
            "it must be at least 2"
        )
    if least is not None and least > size:
        raise InputError(f"min_group_members is {least}, more than group_size={size}; no group could reach it")


def _check_loss(config: ReinforcementConfig) -> None:
    is_clipped = config.loss_fn in ("ppo", "cispo", "gspo")
    if not is_clipped and (config.clip_low, config.clip_high) != (None, None):
        raise InputError(f"clip_low and clip_high are for ppo, cispo and gspo, not for {config.loss_fn}")
    if config.loss_fn != "dro" and config.dro_beta is not None:
        raise InputError(f"dro_beta is for dro, not for {config.loss_fn}")
    for name in ("clip_low", "clip_high", "dro_beta"):
        value = getattr(config, name)
        if value is not None and not 0 <= value < math.inf:
            raise InputError(f"{name} is {value}; it must be a number and not negative")
    if config.clip_low is not None and config.clip_high is not None and config.clip_low >= config.clip_high:
        raise InputError(f"clip_low={config.clip_low} must be below clip_high={config.clip_high}")
    if not config.kl_coef and (config.kl_reference is not None or config.kl_gamma):
        raise InputError("kl_reference and kl_gamma are for the KL penalty, which kl_coef=0 turns off; set kl_coef")


@dataclass(frozen=True, kw_only=True)
class ReinforcementRecipe(Generic[C]):
    """A reinforcement recipe, but for its config class: its defaults and its environments."""

    name: str
    defaults: Callable[[C], Mapping[str, Any]]
    """Values by field for what the config leaves at None."""
    environments: "Callable[[C, OpenSampler], RLDatasetBuilder]"
    """Of a resolved config; the second argument opens a sampler of another model, once rollouts run."""

    def resolve(self, config: C) -> C:
        """The config with every default decided; one that is resolved already comes back as it is.

        Raises:
            InputError: a value is out of range, or does not go with the others.
        """
        decided = decide(config, self.name, **{**_DEFAULTS, **self.defaults(config)})
        _check(decided)
        return decided

    def workflow(self) -> "Workflow[ReinforcementState]":
        """The stages of a reinforcement run."""
        from cookhouse.workflows import REINFORCEMENT

        return REINFORCEMENT

    async def execute(
        self,
        config: C,
        *,
        connect: "Connect",
        telemetry: "Telemetry",
        interrupt: "Interrupt",
        ask: Callable[[str], str] | None,
    ) -> "RunResult":
        """Run a resolved config. Raises as `cookhouse.recipes.run`."""
        from cookhouse.workflows import (
            REINFORCEMENT,
            ReinforcementState,
            choose_folder,
            reinforcement_result,
            run_workflow,
        )

        start = time.monotonic()
        plan = self._plan(config, ask)
        state = ReinforcementState(
            telemetry=telemetry,
            interrupt=interrupt,
            service=connect,
            plan=plan,
            choice=choose_folder(plan.folder),
        )
        await run_workflow(REINFORCEMENT, state)
        return reinforcement_result(state, num_samples=config.num_samples, seconds=time.monotonic() - start)

    def dry_run(self, config: C) -> "DryRunReport":
        """Read and count, by the stages that a run begins with."""
        from cookhouse.workflows import dry_run_reinforcement

        # Whether a folder that exists may be used is checked; what would be asked about it is left to the run.
        return dry_run_reinforcement(self._plan(self.resolve(config), lambda _: "delete"))

    def _plan(self, config: C, ask: Callable[[str], str] | None) -> "ReinforcementPlan":
        return _make_plan(config, self.name, partial(self.environments, config), ask)


def _make_plan(
    config: ReinforcementConfig, recipe: str, make_data: "MakeData", ask: Callable[[str], str] | None
) -> "ReinforcementPlan":
    from cookhouse.rl import RolloutLimits, RolloutStrategy
    from cookhouse.training import AdvantageSpec, Sampling, StepPlan
    from cookhouse.workflows import ReinforcementPlan

    assert config.max_tokens is not None
    assert config.ppo_epochs is not None
    assert config.advantage is not None
    return ReinforcementPlan(
        **common_plan(config, recipe, ask, config.data_files),
        make_data=make_data,
        sampling=Sampling(max_tokens=config.max_tokens, temperature=config.temperature),
        eval_sampling=Sampling(max_tokens=config.max_tokens, temperature=config.eval_temperature),
        num_eval=config.num_eval,
        limits=RolloutLimits(max_turns=config.max_turns, max_tokens=config.max_sequence_tokens),
        strategy=RolloutStrategy(attempts=config.rollout_attempts, min_members=config.min_group_members),
        fails_with_group=config.on_failed_group == "stop",
        max_concurrent_groups=config.max_concurrent_groups,
        max_lag=config.max_steps_off_policy,
        step_plan=StepPlan(
            num_minibatches=config.num_minibatches, num_substeps=config.num_substeps, num_epochs=config.ppo_epochs
        ),
        advantages=AdvantageSpec(
            method=config.advantage,
            gamma=config.gamma,
            lam=config.gae_lambda,
            removes_constant_groups=config.remove_constant_reward_groups,
            kl_coef=config.kl_coef,
            kl_gamma=config.kl_gamma,
        ),
        reference_model=(config.kl_reference or config.model_name) if config.kl_coef else None,
        loss=_loss(config),
        computes_post_kl=config.compute_post_kl,
    )


def _loss(config: ReinforcementConfig) -> "PolicyLoss":
    from cookhouse.training import PolicyLoss

    assert config.loss_fn is not None
    options: dict[str, Any] = {
        "clip_low_threshold": config.clip_low,
        "clip_high_threshold": config.clip_high,
        "beta": config.dro_beta,
    }
    return PolicyLoss(
        loss_fn=config.loss_fn, config={name: value for name, value in options.items() if value is not None}
    )
