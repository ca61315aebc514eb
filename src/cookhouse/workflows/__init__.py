"""Workflows: named stages over a run's state, around a training loop, stages alone, or other runs."""

from cookhouse.workflows.body import Body, Child, Children, Loop, PipelineState, Stages
from cookhouse.workflows.evaluation import EvaluatorRun, HeldOutEvaluation
from cookhouse.workflows.execution import StageError
from cookhouse.workflows.flat import FlatState, flat_workflow
from cookhouse.workflows.folder import FolderChoice, FolderSpec, RecordedAnswer, RunFolder, choose_folder, open_folder
from cookhouse.workflows.outcome import RESULT_FILE, read_result, write_result
from cookhouse.workflows.pipeline import ChildRun, PipelineRunState, pipeline_workflow
from cookhouse.workflows.reinforcement import Environments, OpenSampler, ReinforcementState, reinforcement_workflow
from cookhouse.workflows.result import AnswerSample, DryRunReport, Figure, Preview, RunResult, RunSummary
from cookhouse.workflows.runner import dry_run_workflow, run_workflow
from cookhouse.workflows.stages import SlotStage, Stage, stage
from cookhouse.workflows.state import RunContext, RunState
from cookhouse.workflows.supervised import SupervisedState, supervised_workflow
from cookhouse.workflows.training_run import TrainingState
from cookhouse.workflows.workflow import Workflow

__all__ = [
    "RESULT_FILE",
    "AnswerSample",
    "Body",
    "Child",
    "ChildRun",
    "Children",
    "DryRunReport",
    "Environments",
    "EvaluatorRun",
    "Figure",
    "FlatState",
    "FolderChoice",
    "FolderSpec",
    "HeldOutEvaluation",
    "Loop",
    "OpenSampler",
    "PipelineRunState",
    "PipelineState",
    "Preview",
    "RecordedAnswer",
    "ReinforcementState",
    "RunContext",
    "RunFolder",
    "RunResult",
    "RunState",
    "RunSummary",
    "SlotStage",
    "Stage",
    "StageError",
    "Stages",
    "SupervisedState",
    "TrainingState",
    "Workflow",
    "choose_folder",
    "dry_run_workflow",
    "flat_workflow",
    "open_folder",
    "pipeline_workflow",
    "read_result",
    "reinforcement_workflow",
    "run_workflow",
    "stage",
    "supervised_workflow",
    "write_result",
]
