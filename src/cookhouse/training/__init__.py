"""Training: the one loop, the clients of the service that computes, sessions and checkpoints."""

from cookhouse.losses.pair_losses import PairLogprobs
from cookhouse.sampling_client import SamplingClient
from cookhouse.training.clients.client import (
    Connect,
    LossFunction,
    PairLossOffer,
    ServiceClient,
    TinkerServiceClient,
    TrainingClient,
    connect_to,
    served_sha256,
)
from cookhouse.training.clients.fake import FakeSamplingClient, FakeService, FakeTrainingClient
from cookhouse.training.clients.logprobs import ComputeLogprobs, target_logprobs
from cookhouse.training.clients.noop import NoopService
from cookhouse.training.clients.session import (
    SessionSpec,
    SessionStatus,
    TrainingSession,
    close_service,
    open_session,
    service_errors,
)
from cookhouse.training.clients.waiting import Waiting
from cookhouse.training.clients.watch import Watch
from cookhouse.training.interrupt import Interrupt
from cookhouse.training.loop.best import BestWeights
from cookhouse.training.loop.cadence import Cadence
from cookhouse.training.loop.loop import TrainingLoop
from cookhouse.training.loop.objective import (
    CROSS_ENTROPY,
    LOSSES,
    Answered,
    CustomLoss,
    Loss,
    Objective,
    ServiceLoss,
    answered_datums,
    likelihood_metrics,
    supervised_objective,
)
from cookhouse.training.loop.optimizer import AdamSchedule
from cookhouse.training.loop.rolling import RollingSaves, drop_checkpoint
from cookhouse.training.loop.saving import (
    CheckpointKind,
    PendingCheckpoint,
    save_checkpoint,
    save_checkpoint_async,
    submit_checkpoint,
)
from cookhouse.training.loop.slots import (
    Evaluation,
    FinishedStep,
    Keep,
    LoopOutcome,
    LoopSlots,
    ScheduledEvaluation,
    SlotNames,
)
from cookhouse.training.loop.source import Batches, BatchSource, Remembering, Source, as_datums
from cookhouse.training.loop.step_log import StepLog
from cookhouse.training.work import Assembled, Assembler, Work

__all__ = [
    "CROSS_ENTROPY",
    "LOSSES",
    "AdamSchedule",
    "Answered",
    "Assembled",
    "Assembler",
    "BatchSource",
    "Batches",
    "BestWeights",
    "Cadence",
    "CheckpointKind",
    "ComputeLogprobs",
    "Connect",
    "CustomLoss",
    "Evaluation",
    "FakeSamplingClient",
    "FakeService",
    "FakeTrainingClient",
    "FinishedStep",
    "Interrupt",
    "Keep",
    "LoopOutcome",
    "LoopSlots",
    "Loss",
    "LossFunction",
    "NoopService",
    "Objective",
    "PairLogprobs",
    "PairLossOffer",
    "PendingCheckpoint",
    "Remembering",
    "RollingSaves",
    "SamplingClient",
    "ScheduledEvaluation",
    "ServiceClient",
    "ServiceLoss",
    "SessionSpec",
    "SessionStatus",
    "SlotNames",
    "Source",
    "StepLog",
    "TinkerServiceClient",
    "TrainingClient",
    "TrainingLoop",
    "TrainingSession",
    "Waiting",
    "Watch",
    "Work",
    "answered_datums",
    "as_datums",
    "close_service",
    "connect_to",
    "drop_checkpoint",
    "likelihood_metrics",
    "open_session",
    "save_checkpoint",
    "save_checkpoint_async",
    "served_sha256",
    "service_errors",
    "submit_checkpoint",
    "supervised_objective",
    "target_logprobs",
]
