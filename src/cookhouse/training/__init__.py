"""Training: the loop, the clients of the service that computes, and rollouts to train on."""

from cookhouse.pair_losses import PairLogprobs
from cookhouse.sampling_client import SamplingClient
from cookhouse.training.checkpoints import Checkpoint, CheckpointFile, get_last_checkpoint
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
from cookhouse.training.clients.noop import NoopService
from cookhouse.training.clients.patience import Patience
from cookhouse.training.clients.session import SessionSpec, SessionStatus, TrainingSession, open_session, service_errors
from cookhouse.training.clients.watch import Watch
from cookhouse.training.distillation.assembler import (
    AnswerAssembler,
    QuestionBatch,
    QuestionDataset,
    TeacherTargets,
)
from cookhouse.training.distillation.objective import FORWARD_KL, taught_objective
from cookhouse.training.distillation.samples import (
    AnswerReader,
    Question,
    TeacherAnswer,
    TeacherSampler,
    count_failures,
    refuse_all_failed,
)
from cookhouse.training.distillation.teachers import (
    Teacher,
    TeacherAdvantages,
    Teachers,
    divergence_metrics,
    no_logprobs,
)
from cookhouse.training.interrupt import Interrupt
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
    likelihood_metrics,
    supervised_objective,
)
from cookhouse.training.loop.optimizer import AdamSchedule
from cookhouse.training.loop.rolling import RollingSaves, drop_rolling
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
    LoopOutcome,
    LoopSlots,
    ScheduledEvaluation,
    SlotNames,
)
from cookhouse.training.loop.source import Batches, BatchSource, Source, as_datums
from cookhouse.training.loop.step_log import StepLog
from cookhouse.training.preference.assembler import PairAssembler, PairPayload
from cookhouse.training.preference.custom import pair_logprobs, pair_metrics
from cookhouse.training.preference.dataset import Pair, PairDataset, interleaved, left_out, pair_renderer, render_pairs
from cookhouse.training.preference.losses import PAIR_LOSSES, PairLoss
from cookhouse.training.preference.measure import measure_pairs
from cookhouse.training.preference.objective import pair_objective
from cookhouse.training.preference.reference import (
    AnswerSums,
    NoReference,
    Reference,
    ServiceReference,
    sums_by_forward,
    sums_by_sampler,
)
from cookhouse.training.preference.stream import StreamedPairBatch, StreamedPairs
from cookhouse.training.rollouts.assembler import ComputeLogprobs, RolloutAssembler, RolloutPayload
from cookhouse.training.rollouts.log import GroupId, RolloutLog
from cookhouse.training.rollouts.policy import Policy, PolicySampler
from cookhouse.training.rollouts.policy_loss import (
    CLIPPED_LOSSES,
    policy_metrics,
    policy_objective,
    post_step_divergence,
)
from cookhouse.training.rollouts.pool import FinishedGroup, Rollout, RolloutPool
from cookhouse.training.rollouts.source import RolloutSource, split_step
from cookhouse.training.weights import names_weights, registered_as, run_that_saved, weights_path
from cookhouse.training.work import Assembled, Assembler, Cursor, Work

__all__ = [
    "CLIPPED_LOSSES",
    "CROSS_ENTROPY",
    "FORWARD_KL",
    "LOSSES",
    "PAIR_LOSSES",
    "AdamSchedule",
    "AnswerAssembler",
    "AnswerReader",
    "AnswerSums",
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
    "NoReference",
    "NoopService",
    "Objective",
    "Pair",
    "PairAssembler",
    "PairDataset",
    "PairLogprobs",
    "PairLoss",
    "PairLossOffer",
    "PairPayload",
    "Patience",
    "PendingCheckpoint",
    "Policy",
    "PolicySampler",
    "Question",
    "QuestionBatch",
    "QuestionDataset",
    "Reference",
    "RollingSaves",
    "Rollout",
    "RolloutAssembler",
    "RolloutLog",
    "RolloutPayload",
    "RolloutPool",
    "RolloutSource",
    "SamplingClient",
    "ScheduledEvaluation",
    "ServiceClient",
    "ServiceLoss",
    "ServiceReference",
    "SessionSpec",
    "SessionStatus",
    "SlotNames",
    "Source",
    "StepLog",
    "StreamedPairBatch",
    "StreamedPairs",
    "Teacher",
    "TeacherAdvantages",
    "TeacherAnswer",
    "TeacherSampler",
    "TeacherTargets",
    "Teachers",
    "TinkerServiceClient",
    "TrainingClient",
    "TrainingLoop",
    "TrainingSession",
    "Watch",
    "Work",
    "as_datums",
    "connect_to",
    "count_failures",
    "divergence_metrics",
    "drop_rolling",
    "get_last_checkpoint",
    "interleaved",
    "left_out",
    "likelihood_metrics",
    "measure_pairs",
    "names_weights",
    "no_logprobs",
    "open_session",
    "pair_logprobs",
    "pair_metrics",
    "pair_objective",
    "pair_renderer",
    "policy_metrics",
    "policy_objective",
    "post_step_divergence",
    "refuse_all_failed",
    "registered_as",
    "render_pairs",
    "run_that_saved",
    "save_checkpoint",
    "save_checkpoint_async",
    "served_sha256",
    "service_errors",
    "split_step",
    "submit_checkpoint",
    "sums_by_forward",
    "sums_by_sampler",
    "supervised_objective",
    "taught_objective",
    "weights_path",
]
