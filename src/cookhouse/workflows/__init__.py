"""Algorithms as workflows: named stages over a run's state, around a training loop, stages alone, or other runs."""

from cookhouse.algorithms import (
    Environments,
    EvaluatorRun,
    OpenedRun,
    ReinforcementState,
    RolloutState,
    RunContext,
    RunState,
    Stage,
    StageError,
    Workflow,
    check_preference_model,
    dry_run_workflow,
    run_workflow,
    stage,
)
from cookhouse.envs import OpenSampler
from cookhouse.workflows.distillation.off_policy import OffPolicyState, off_policy_workflow
from cookhouse.workflows.distillation.on_policy import OnPolicyState, on_policy_workflow
from cookhouse.workflows.evaluation.comparison import ComparisonState, comparison_workflow
from cookhouse.workflows.evaluation.state import EvaluationState
from cookhouse.workflows.evaluation.workflow import evaluation_workflow
from cookhouse.workflows.flat import FlatState, flat_workflow
from cookhouse.workflows.pipeline import ChildRun, PipelineRunState, pipeline_workflow
from cookhouse.workflows.preference.state import PreferenceState
from cookhouse.workflows.preference.workflow import preference_workflow
from cookhouse.workflows.preference_model.workflow import PreferenceModelState, preference_model_workflow
from cookhouse.workflows.reinforcement.workflow import reinforcement_workflow
from cookhouse.workflows.supervised.rows import RunData
from cookhouse.workflows.supervised.state import SupervisedState
from cookhouse.workflows.supervised.workflow import supervised_workflow

__all__ = [
    "ChildRun",
    "ComparisonState",
    "Environments",
    "EvaluationState",
    "EvaluatorRun",
    "FlatState",
    "OffPolicyState",
    "OnPolicyState",
    "OpenSampler",
    "OpenedRun",
    "PipelineRunState",
    "PreferenceModelState",
    "PreferenceState",
    "ReinforcementState",
    "RolloutState",
    "RunContext",
    "RunData",
    "RunState",
    "Stage",
    "StageError",
    "SupervisedState",
    "Workflow",
    "check_preference_model",
    "comparison_workflow",
    "dry_run_workflow",
    "evaluation_workflow",
    "flat_workflow",
    "off_policy_workflow",
    "on_policy_workflow",
    "pipeline_workflow",
    "preference_model_workflow",
    "preference_workflow",
    "reinforcement_workflow",
    "run_workflow",
    "stage",
    "supervised_workflow",
]
