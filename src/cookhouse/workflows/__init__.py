"""Algorithms as workflows: named stages over a run's state, around a training loop, stages alone, or other runs."""

from cookhouse.algorithms.base.evaluation import EvaluatorRun
from cookhouse.algorithms.base.judge import check_preference_model
from cookhouse.algorithms.base.state import OpenedRun
from cookhouse.algorithms.rollouts.problems import Environments
from cookhouse.algorithms.rollouts.reinforcement import ReinforcementState
from cookhouse.algorithms.rollouts.state import RolloutState
from cookhouse.algorithms.stages.execution import StageError
from cookhouse.algorithms.stages.runner import dry_run_workflow, run_workflow
from cookhouse.algorithms.stages.stage import Stage, stage
from cookhouse.algorithms.stages.state import RunContext, RunState
from cookhouse.algorithms.stages.workflow import Workflow
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
