"""Workflows: named stages over a run's state, around a training loop, stages alone, or other runs."""

from cookhouse.envs import OpenSampler
from cookhouse.workflows.base.evaluation import EvaluatorRun, HeldOutEvaluation, init_evaluators
from cookhouse.workflows.base.preference_model import check_preference_model
from cookhouse.workflows.base.run import TrainingState
from cookhouse.workflows.base.slots import batch_source, log_slot, objective_slot
from cookhouse.workflows.base.tokenizer import init_tokenizer
from cookhouse.workflows.base.workflow import training_workflow
from cookhouse.workflows.distillation.off_policy import off_policy_workflow
from cookhouse.workflows.distillation.on_policy import on_policy_workflow
from cookhouse.workflows.distillation.state import OffPolicyState, OnPolicyState
from cookhouse.workflows.evaluation.comparison import ComparisonState, comparison_workflow
from cookhouse.workflows.evaluation.state import EvaluationState
from cookhouse.workflows.evaluation.workflow import evaluation_workflow
from cookhouse.workflows.flat import FlatState, flat_workflow
from cookhouse.workflows.pipeline import ChildRun, PipelineRunState, pipeline_workflow
from cookhouse.workflows.preference.state import PreferenceState
from cookhouse.workflows.preference.workflow import preference_workflow
from cookhouse.workflows.preference_model.state import PreferenceModelState
from cookhouse.workflows.preference_model.workflow import preference_model_workflow
from cookhouse.workflows.reinforcement.rollouts import publish_slot, sample_groups
from cookhouse.workflows.reinforcement.state import Environments, ReinforcementState, RolloutState
from cookhouse.workflows.reinforcement.workflow import reinforcement_workflow
from cookhouse.workflows.stages.body import Body, Child, Children, Loop, PipelineState, Stages
from cookhouse.workflows.stages.execution import StageError
from cookhouse.workflows.stages.runner import dry_run_workflow, run_workflow
from cookhouse.workflows.stages.stage import SlotStage, Stage, stage
from cookhouse.workflows.stages.state import RunContext, RunState
from cookhouse.workflows.stages.workflow import Workflow
from cookhouse.workflows.supervised.state import SupervisedState
from cookhouse.workflows.supervised.workflow import supervised_workflow

__all__ = [
    "Body",
    "Child",
    "ChildRun",
    "Children",
    "ComparisonState",
    "Environments",
    "EvaluationState",
    "EvaluatorRun",
    "FlatState",
    "HeldOutEvaluation",
    "Loop",
    "OffPolicyState",
    "OnPolicyState",
    "OpenSampler",
    "PipelineRunState",
    "PipelineState",
    "PreferenceModelState",
    "PreferenceState",
    "ReinforcementState",
    "RolloutState",
    "RunContext",
    "RunState",
    "SlotStage",
    "Stage",
    "StageError",
    "Stages",
    "SupervisedState",
    "TrainingState",
    "Workflow",
    "batch_source",
    "check_preference_model",
    "comparison_workflow",
    "dry_run_workflow",
    "evaluation_workflow",
    "flat_workflow",
    "init_evaluators",
    "init_tokenizer",
    "log_slot",
    "objective_slot",
    "off_policy_workflow",
    "on_policy_workflow",
    "pipeline_workflow",
    "preference_model_workflow",
    "preference_workflow",
    "publish_slot",
    "reinforcement_workflow",
    "run_workflow",
    "sample_groups",
    "stage",
    "supervised_workflow",
    "training_workflow",
]
