"""The training loop, and what it is made of."""

from cookhouse.training.cadence import Cadence
from cookhouse.training.checkpoints import (
    Checkpoint,
    CheckpointFile,
    CheckpointKind,
    PendingCheckpoint,
    submit_checkpoint,
)
from cookhouse.training.client import Connect, SamplingClient, Service, TinkerService, TrainingClient, connect_to
from cookhouse.training.fake import FakeSamplingClient, FakeService, FakeTrainingClient
from cookhouse.training.interrupt import Interrupt
from cookhouse.training.loop import Evaluation, FinishedStep, LoopOutcome, LoopSlots, SlotNames, TrainingLoop
from cookhouse.training.objective import CrossEntropy, Objective
from cookhouse.training.optimizer import AdamSchedule
from cookhouse.training.patience import Patience
from cookhouse.training.policy import Policy, PolicySampler, Sampling
from cookhouse.training.policy_loss import CLIPPED_LOSSES, PolicyLoss, post_step_divergence
from cookhouse.training.rollout_batch import AdvantageSpec, Batch, ComputeLogprobs, RolloutBatcher
from cookhouse.training.rollout_log import GroupId, RolloutLog
from cookhouse.training.rollout_pool import FinishedGroup, Rollout, RolloutPool
from cookhouse.training.rollout_source import RolloutSource, StepPlan
from cookhouse.training.session import Session, SessionSpec, SessionStatus, open_session, service_errors
from cookhouse.training.source import Batches, Source, SupervisedSource
from cookhouse.training.step_log import StepLog
from cookhouse.training.watch import Watch
from cookhouse.training.weights import names_weights, run_that_saved, weights_path
from cookhouse.training.work import Cursor, Work

__all__ = [
    "CLIPPED_LOSSES",
    "AdamSchedule",
    "AdvantageSpec",
    "Batch",
    "Batches",
    "Cadence",
    "Checkpoint",
    "CheckpointFile",
    "CheckpointKind",
    "ComputeLogprobs",
    "Connect",
    "CrossEntropy",
    "Cursor",
    "Evaluation",
    "FakeSamplingClient",
    "FakeService",
    "FakeTrainingClient",
    "FinishedGroup",
    "FinishedStep",
    "GroupId",
    "Interrupt",
    "LoopOutcome",
    "LoopSlots",
    "Objective",
    "Patience",
    "PendingCheckpoint",
    "Policy",
    "PolicyLoss",
    "PolicySampler",
    "Rollout",
    "RolloutBatcher",
    "RolloutLog",
    "RolloutPool",
    "RolloutSource",
    "Sampling",
    "SamplingClient",
    "Service",
    "Session",
    "SessionSpec",
    "SessionStatus",
    "SlotNames",
    "Source",
    "StepLog",
    "StepPlan",
    "SupervisedSource",
    "TinkerService",
    "TrainingClient",
    "TrainingLoop",
    "Watch",
    "Work",
    "connect_to",
    "names_weights",
    "open_session",
    "post_step_divergence",
    "run_that_saved",
    "service_errors",
    "submit_checkpoint",
    "weights_path",
]
