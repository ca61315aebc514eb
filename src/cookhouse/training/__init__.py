"""The training loop, and what it is made of."""

from cookhouse.training.cadence import Cadence
from cookhouse.training.checkpoints import (
    Checkpoint,
    CheckpointFile,
    CheckpointKind,
    PendingCheckpoint,
    submit_checkpoint,
)
from cookhouse.training.client import Connect, SamplingClient, Service, TrainingClient, connect_to
from cookhouse.training.fake import FakeSamplingClient, FakeService, FakeTrainingClient
from cookhouse.training.interrupt import Interrupt
from cookhouse.training.loop import Evaluation, FinishedStep, LoopOutcome, LoopSlots, SlotNames, TrainingLoop
from cookhouse.training.objective import CrossEntropy, Objective
from cookhouse.training.optimizer import AdamSchedule
from cookhouse.training.session import Session, SessionSpec, SessionStatus, open_session, service_errors
from cookhouse.training.source import Batches, Source, SupervisedSource
from cookhouse.training.step_log import StepLog
from cookhouse.training.work import Cursor, Work

__all__ = [
    "AdamSchedule",
    "Batches",
    "Cadence",
    "Checkpoint",
    "CheckpointFile",
    "CheckpointKind",
    "Connect",
    "CrossEntropy",
    "Cursor",
    "Evaluation",
    "FakeSamplingClient",
    "FakeService",
    "FakeTrainingClient",
    "FinishedStep",
    "Interrupt",
    "LoopOutcome",
    "LoopSlots",
    "Objective",
    "PendingCheckpoint",
    "SamplingClient",
    "Service",
    "Session",
    "SessionSpec",
    "SessionStatus",
    "SlotNames",
    "Source",
    "StepLog",
    "SupervisedSource",
    "TrainingClient",
    "TrainingLoop",
    "Work",
    "connect_to",
    "open_session",
    "service_errors",
    "submit_checkpoint",
]
