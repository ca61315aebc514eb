"""Parts of an algorithm: stages, sources, assemblers, objectives, metrics, evaluators, and the workflow around them.

The algorithms of cookhouse and your own are written with these names and those of `cookhouse`, `cookhouse.rl`,
`cookhouse.settings` and other packages. They change by the policy on deprecation.
"""

from cookhouse.algorithms.base.batch_size import batches_of, fit_batch
from cookhouse.algorithms.base.counts import Counts, added, batch_metrics, estimated, expected_training
from cookhouse.algorithms.base.evaluation import (
    EvaluatorRun,
    HeldOutEvaluation,
    NamedEvaluator,
    asked_of,
    init_evaluators,
    keep_noted,
    record_metrics,
    recorded_answer,
)
from cookhouse.algorithms.base.facts import (
    RatedConfig,
    Row,
    context_fact,
    held_out_figures,
    settings_notes,
    steps_notes,
    trained_figure,
)
from cookhouse.algorithms.base.judge import check_preference_model, judges_asked, open_judge
from cookhouse.algorithms.base.loop import batch_source, keep_examples, keeper, log_slot, objective_slot, training_loop
from cookhouse.algorithms.base.reference_place import reference_in_words
from cookhouse.algorithms.base.rows import (
    SplitRows,
    check_preferences,
    cut_notes,
    joined,
    kept_tokens,
    recorded_sources,
    sources_of,
    split_off,
    split_rows,
)
from cookhouse.algorithms.base.run import cleanup, open_run, planned_steps, refuse_longer, scheduled, watch_findings
from cookhouse.algorithms.base.second_model import open_sampler, sampler_at, sampler_place
from cookhouse.algorithms.base.spending import ExpectedTokens, in_steps
from cookhouse.algorithms.base.state import OpenedRun, SavedWeights, Steps, TrainingState
from cookhouse.algorithms.base.tokenizer import format_notes, init_tokenizer, load_renderer, previews_of, tell_previews
from cookhouse.algorithms.base.workflow import training_workflow
from cookhouse.algorithms.pairs.dataset import (
    Pair,
    PairDataset,
    interleaved,
    left_out,
    pair_renderer,
    render_pairs,
    sampled_pair,
)
from cookhouse.algorithms.pairs.objective import (
    init_pairs,
    mean_loss,
    open_pairs,
    pair_metrics,
    pair_objective,
    pairs_of_logprobs,
)
from cookhouse.algorithms.pairs.reference import (
    PairAssembler,
    PairPayload,
    Reference,
    open_reference,
)
from cookhouse.algorithms.rollouts.assembler import Adjust, RolloutAssembler, RolloutPayload
from cookhouse.algorithms.rollouts.evaluation import attempt_all
from cookhouse.algorithms.rollouts.objective import policy_objective
from cookhouse.algorithms.rollouts.policy import PolicySampler
from cookhouse.algorithms.rollouts.problems import (
    Environments,
    EpochBatches,
    Problems,
    WeightedProblems,
    build_env_group,
)
from cookhouse.algorithms.rollouts.reinforcement import (
    ReinforcementState,
    build_rl_groups,
    init_rl_session,
    keep_rl_examples,
    last_step,
    post_kl,
    rollout_assembler,
    rollout_source,
)
from cookhouse.algorithms.rollouts.rollouts import OpenedRollouts, init_rollouts, publish_weights
from cookhouse.algorithms.rollouts.source import RolloutSource
from cookhouse.algorithms.rollouts.state import RolloutState
from cookhouse.algorithms.rollouts.workflow import rollout_workflow
from cookhouse.algorithms.stages.body import Body, stages_in_order
from cookhouse.algorithms.stages.execution import StageError
from cookhouse.algorithms.stages.headline import watch_headline
from cookhouse.algorithms.stages.registering import is_registered, register_run
from cookhouse.algorithms.stages.runner import dry_run_workflow, run_workflow
from cookhouse.algorithms.stages.sinks import start_sinks
from cookhouse.algorithms.stages.stage import Stage, stage
from cookhouse.algorithms.stages.state import RunContext, RunState
from cookhouse.algorithms.stages.workflow import Workflow
from cookhouse.training import (
    CROSS_ENTROPY,
    AdamSchedule,
    Answered,
    Assembled,
    Assembler,
    Batches,
    BatchSource,
    Cadence,
    CustomLoss,
    Evaluation,
    FinishedStep,
    Objective,
    Remembering,
    ScheduledEvaluation,
    ServiceLoss,
    Source,
    Work,
)

__all__ = [
    "CROSS_ENTROPY",
    "AdamSchedule",
    "Adjust",
    "Answered",
    "Assembled",
    "Assembler",
    "BatchSource",
    "Batches",
    "Body",
    "Cadence",
    "Counts",
    "CustomLoss",
    "Environments",
    "EpochBatches",
    "Evaluation",
    "EvaluatorRun",
    "ExpectedTokens",
    "FinishedStep",
    "HeldOutEvaluation",
    "NamedEvaluator",
    "Objective",
    "OpenedRollouts",
    "OpenedRun",
    "Pair",
    "PairAssembler",
    "PairDataset",
    "PairPayload",
    "PolicySampler",
    "Problems",
    "RatedConfig",
    "Reference",
    "ReinforcementState",
    "Remembering",
    "RolloutAssembler",
    "RolloutPayload",
    "RolloutSource",
    "RolloutState",
    "Row",
    "RunContext",
    "RunState",
    "SavedWeights",
    "ScheduledEvaluation",
    "ServiceLoss",
    "Source",
    "SplitRows",
    "Stage",
    "StageError",
    "Steps",
    "TrainingState",
    "WeightedProblems",
    "Work",
    "Workflow",
    "added",
    "asked_of",
    "attempt_all",
    "batch_metrics",
    "batch_source",
    "batches_of",
    "build_env_group",
    "build_rl_groups",
    "check_preference_model",
    "check_preferences",
    "cleanup",
    "context_fact",
    "cut_notes",
    "dry_run_workflow",
    "estimated",
    "expected_training",
    "fit_batch",
    "format_notes",
    "held_out_figures",
    "in_steps",
    "init_evaluators",
    "init_pairs",
    "init_rl_session",
    "init_rollouts",
    "init_tokenizer",
    "interleaved",
    "is_registered",
    "joined",
    "judges_asked",
    "keep_examples",
    "keep_noted",
    "keep_rl_examples",
    "keeper",
    "kept_tokens",
    "last_step",
    "left_out",
    "load_renderer",
    "log_slot",
    "mean_loss",
    "objective_slot",
    "open_judge",
    "open_pairs",
    "open_reference",
    "open_run",
    "open_sampler",
    "pair_metrics",
    "pair_objective",
    "pair_renderer",
    "pairs_of_logprobs",
    "planned_steps",
    "policy_objective",
    "post_kl",
    "previews_of",
    "publish_weights",
    "record_metrics",
    "recorded_answer",
    "recorded_sources",
    "reference_in_words",
    "refuse_longer",
    "register_run",
    "render_pairs",
    "rollout_assembler",
    "rollout_source",
    "rollout_workflow",
    "run_workflow",
    "sampled_pair",
    "sampler_at",
    "sampler_place",
    "scheduled",
    "settings_notes",
    "sources_of",
    "split_off",
    "split_rows",
    "stage",
    "stages_in_order",
    "start_sinks",
    "steps_notes",
    "tell_previews",
    "trained_figure",
    "training_loop",
    "training_workflow",
    "watch_findings",
    "watch_headline",
]
