"""The training loop, and what it is made of."""

from cookhouse.training.cadence import Cadence
from cookhouse.training.checkpoints import (
    Checkpoint,
    CheckpointFile,
    CheckpointKind,
    PendingCheckpoint,
    submit_checkpoint,
)
from cookhouse.training.client import (
    Connect,
    LossFunction,
    SamplingClient,
    Service,
    TinkerService,
    TrainingClient,
    connect_to,
)
from cookhouse.training.fake import FakeSamplingClient, FakeService, FakeTrainingClient
from cookhouse.training.interrupt import Interrupt
from cookhouse.training.loop import (
    Evaluation,
    FinishedStep,
    LoopOutcome,
    LoopSlots,
    ScheduledEvaluation,
    SlotNames,
    TrainingLoop,
)
from cookhouse.training.objective import (
    CROSS_ENTROPY,
    LOSSES,
    Answered,
    CustomLoss,
    Loss,
    Objective,
    ServiceLoss,
    likelihood_metrics,
    supervised_objective,
)
from cookhouse.training.optimizer import AdamSchedule
from cookhouse.training.patience import Patience
from cookhouse.training.policy import Policy, PolicySampler
from cookhouse.training.policy_loss import CLIPPED_LOSSES, policy_metrics, policy_objective, post_step_divergence
from cookhouse.training.rollout_assembler import ComputeLogprobs, RolloutAssembler, RolloutPayload
from cookhouse.training.rollout_log import GroupId, RolloutLog
from cookhouse.training.rollout_pool import FinishedGroup, Rollout, RolloutPool
from cookhouse.training.rollout_source import RolloutSource, split_step
from cookhouse.training.session import Session, SessionSpec, SessionStatus, open_session, service_errors
from cookhouse.training.source import Batches, BatchSource, Source, as_datums
from cookhouse.training.step_log import StepLog
from cookhouse.training.watch import Watch
from cookhouse.training.weights import names_weights, run_that_saved, weights_path
from cookhouse.training.work import Assembled, Assembler, Cursor, Work

__all__ = [
    "CLIPPED_LOSSES",
    "CROSS_ENTROPY",
    "LOSSES",
    "AdamSchedule",
    "Answered",
    "Assembled",
    "Assembler",
    "BatchSource",
    "Batches",
    "Cadence",
    "Checkpoint",
    "CheckpointFile",
    "CheckpointKind",
    "ComputeLogprobs",
    "Connect",
    "Cursor",
    "CustomLoss",
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
    "Loss",
    "LossFunction",
    "Objective",
    "Patience",
    "PendingCheckpoint",
    "Policy",
    "PolicySampler",
    "Rollout",
    "RolloutAssembler",
    "RolloutLog",
    "RolloutPayload",
    "RolloutPool",
    "RolloutSource",
    "SamplingClient",
    "ScheduledEvaluation",
    "Service",
    "ServiceLoss",
    "Session",
    "SessionSpec",
    "SessionStatus",
    "SlotNames",
    "Source",
    "StepLog",
    "TinkerService",
    "TrainingClient",
    "TrainingLoop",
    "Watch",
    "Work",
    "as_datums",
    "connect_to",
    "likelihood_metrics",
    "names_weights",
    "open_session",
    "policy_metrics",
    "policy_objective",
    "post_step_divergence",
    "run_that_saved",
    "service_errors",
    "split_step",
    "submit_checkpoint",
    "supervised_objective",
    "weights_path",
]
