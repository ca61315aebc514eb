"""Algorithms as workflows: named stages over a run's state, around a training loop, stages alone, or other runs."""

from cookhouse.algorithms.stages.execution import StageError
from cookhouse.algorithms.stages.runner import dry_run_workflow, run_workflow
from cookhouse.algorithms.stages.stage import Stage, stage
from cookhouse.algorithms.stages.state import RunContext, RunState
from cookhouse.algorithms.stages.workflow import Workflow
from cookhouse.workflows.pipeline import ChildRun, PipelineRunState, pipeline_workflow
from cookhouse.workflows.supervised.state import SupervisedState
from cookhouse.workflows.supervised.workflow import supervised_workflow

__all__ = [
    "ChildRun",
    "PipelineRunState",
    "RunContext",
    "RunState",
    "Stage",
    "StageError",
    "SupervisedState",
    "Workflow",
    "dry_run_workflow",
    "pipeline_workflow",
    "run_workflow",
    "stage",
    "supervised_workflow",
]
from cookhouse.workflows.preference.state import PreferenceState
from cookhouse.workflows.preference.workflow import preference_workflow
from cookhouse.workflows.preference_model.workflow import PreferenceModelState, preference_model_workflow
