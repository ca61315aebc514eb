"""Workflows: named stages over a run's state, with one training loop among them."""

from cookhouse.workflows.evaluation import HeldOutEvaluation
from cookhouse.workflows.folder import FolderChoice, FolderSpec, RecordedAnswer, RunFolder, choose_folder, open_folder
from cookhouse.workflows.reinforcement import (
    REINFORCEMENT,
    MakeData,
    OpenSampler,
    ReinforcementPlan,
    ReinforcementState,
)
from cookhouse.workflows.reinforcement_report import dry_run_reinforcement, reinforcement_result
from cookhouse.workflows.result import AnswerSample, DryRunReport, Figure, RunResult, RunSummary
from cookhouse.workflows.runner import RunState, StageError, run_workflow
from cookhouse.workflows.stage import SlotStage, Stage, stage
from cookhouse.workflows.supervised import SUPERVISED, SupervisedPlan, SupervisedState
from cookhouse.workflows.supervised_report import dry_run_supervised, supervised_result
from cookhouse.workflows.training_run import TrainingPlan, TrainingState
from cookhouse.workflows.workflow import LoopStages, Workflow

__all__ = [
    "REINFORCEMENT",
    "SUPERVISED",
    "AnswerSample",
    "DryRunReport",
    "Figure",
    "FolderChoice",
    "FolderSpec",
    "HeldOutEvaluation",
    "LoopStages",
    "MakeData",
    "OpenSampler",
    "RecordedAnswer",
    "ReinforcementPlan",
    "ReinforcementState",
    "RunFolder",
    "RunResult",
    "RunState",
    "RunSummary",
    "SlotStage",
    "Stage",
    "StageError",
    "SupervisedPlan",
    "SupervisedState",
    "TrainingPlan",
    "TrainingState",
    "Workflow",
    "choose_folder",
    "dry_run_reinforcement",
    "dry_run_supervised",
    "open_folder",
    "reinforcement_result",
    "run_workflow",
    "stage",
    "supervised_result",
]
