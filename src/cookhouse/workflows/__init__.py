"""Workflows: named stages over a run's state, around a training loop, stages alone, or other runs."""

from cookhouse.workflows.body import Body, Child, Children, Loop, PipelineState, Stages
from cookhouse.workflows.evaluation import EvaluatorRun, HeldOutEvaluation
from cookhouse.workflows.execution import StageError
from cookhouse.workflows.flat import FlatState, flat_workflow
from cookhouse.workflows.pipeline import ChildRun, PipelineRunState, pipeline_workflow
from cookhouse.workflows.reinforcement import Environments, OpenSampler, ReinforcementState, reinforcement_workflow
from cookhouse.workflows.runner import dry_run_workflow, run_workflow
from cookhouse.workflows.stages import SlotStage, Stage, stage
from cookhouse.workflows.state import RunContext, RunState
from cookhouse.workflows.supervised import SupervisedState, supervised_workflow
from cookhouse.workflows.training_run import TrainingState
from cookhouse.workflows.workflow import Workflow

__all__ = [
    "Body",
    "Child",
    "ChildRun",
    "Children",
    "Environments",
    "EvaluatorRun",
    "FlatState",
    "HeldOutEvaluation",
    "Loop",
    "OpenSampler",
    "PipelineRunState",
    "PipelineState",
    "ReinforcementState",
    "RunContext",
    "RunState",
    "SlotStage",
    "Stage",
    "StageError",
    "Stages",
    "SupervisedState",
    "TrainingState",
    "Workflow",
    "dry_run_workflow",
    "flat_workflow",
    "pipeline_workflow",
    "reinforcement_workflow",
    "run_workflow",
    "stage",
    "supervised_workflow",
]
