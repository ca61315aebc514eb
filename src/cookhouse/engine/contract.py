"""What a server may ask of an engine: the whole surface, implemented in process or by a cluster.

An engine knows models (one trained adapter each, or all weights), snapshots (immutable weights that sampling reads) and
samples in flight. It knows nothing of HTTP, futures or paths on the wire, and of tenants only whose a sample is. Its
methods block, and are called from one thread; only `save_snapshot` and what `copy_state` returns may run in another,
since what they write never changes.

Every method raises `InputError` when the caller is to blame, and has then changed nothing.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from cookhouse import pair_losses
from cookhouse.errors import InputError

PAIR_LOSSES = tuple(name for name, loss in pair_losses.BUILT_IN_PAIR_LOSSES.items() if not loss.compares_batch)
"""Losses over pairs of datums (chosen, rejected, chosen, ...), besides those over tokens."""


class DamagedError(InputError):
    """The files of a checkpoint cannot be read, or are not those that were written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BaseModelInfo:
    """A base model that can be trained and sampled."""

    name: str
    tokenizer_id: str
    """Folder or hub id that `AutoTokenizer.from_pretrained` loads."""
    architecture: str
    vocab_size: int
    max_context_tokens: int
    max_lora_rank: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LoraSpec:
    """What a run trains: an adapter of this shape, or with rank 0 every weight of the base model.

    Scaling is 32 / rank, so that the best learning rate does not depend on the rank.
    """

    rank: int = 32
    seed: int = 0
    train_attn: bool = True
    train_mlp: bool = True
    train_unembed: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class AdamStep:
    """Hyperparameters of one AdamW step: bias-corrected, weight decay decoupled. `grad_clip_norm` 0 clips nothing."""

    learning_rate: float
    beta1: float = 0.9
    beta2: float = 0.95
    eps: float = 1e-8
    weight_decay: float = 0.0
    grad_clip_norm: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingDatum:
    """One sequence. Position t of `tokens_T` predicts `target_tokens`[t]: the caller has already shifted."""

    tokens_T: NDArray[np.int64]
    loss_fn_inputs: Mapping[str, NDArray[np.int64] | NDArray[np.float32]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ForwardBackward:
    """Add the gradient of a loss, summed over all tokens of all datums, to a model's gradient."""

    model_id: str
    data_D: Sequence[TrainingDatum]
    loss_fn: str
    loss_fn_config: Mapping[str, float | str] = field(default_factory=dict)
    forward_only: bool = False
    """Compute loss and outputs, leave the gradient as it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ForwardBackwardOutput:
    """`logprobs_D[i]` is float32 in the shape of datum i's `target_tokens`. Of `PAIR_LOSSES` it is two values that add
    up, in double precision, to Σ w·logprob. Metric keys are `name:reduction`.
    """

    logprobs_D: Sequence[NDArray[np.float32]]
    metrics: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptTargets:
    """Tokens to be scored in place of a prompt's own: `tokens_M[i]` at prompt position `positions_M[i]`.

    Positions never decrease, and begin at 1: nothing precedes the first.
    """

    positions_M: NDArray[np.int64]
    tokens_M: NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleRequest:
    """Draw `num_samples` continuations of one prompt under the weights of a snapshot, or of a bare base model."""

    request_id: str
    base_model: str
    snapshot_id: str | None
    prompt_T: NDArray[np.int64]
    owner: str = ""
    """Requests of different owners share no cached prefix: how fast one is answered tells nothing of the others'."""
    num_samples: int = 1
    max_tokens: int | None = None
    """None: up to the model's context."""
    temperature: float = 1.0
    """0 is greedy."""
    top_k: int = -1
    top_p: float = 1.0
    seed: int | None = None
    """None draws a fresh one. Sample i of a request uses (seed, i): tokens do not depend on neighbors in the batch."""
    stop: Sequence[str | int] | None = None
    """What ends a sample beside the model's end tokens; empty: nothing does but `max_tokens`, end tokens neither."""
    prompt_logprobs: bool = False
    topk_prompt_logprobs: int = 0
    topk_sample_logprobs: int = 0
    prompt_targets: PromptTargets | None = None
    is_streamed: bool = False
    """Whether its tokens are told as they come, beside the whole at its end."""

    @property
    def scores_prompt(self) -> bool:
        """Whether anything is asked about the prompt's positions, so that they have to be computed."""
        return self.prompt_logprobs or self.topk_prompt_logprobs > 0 or self.prompt_targets is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class SampledSequence:
    """Tokens include the stop token, or those that complete a stop string. `logprobs_T` are of the distribution sampled
    from before top-k and top-p, so at temperature 1 they equal the trainer's; greedy reports temperature 1.
    """

    tokens_T: NDArray[np.int32]
    logprobs_T: NDArray[np.float32]
    is_stopped: bool
    """False when `max_tokens` or the context ended it."""
    topk_tokens_TK: NDArray[np.int32] | None = None
    """Row t ranks the candidates for the sampled token t, most likely first."""
    topk_logprobs_TK: NDArray[np.float32] | None = None
    """Of the distribution that `logprobs_T` are of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleOutput:
    """`error` is set instead of sequences when the request failed while running."""

    request_id: str
    is_partial: bool = False
    """Whether it is of one step of a streamed request: each of its samples has the tokens of that step, maybe none. The
    whole follows in the end."""
    sequences: Sequence[SampledSequence] = ()
    num_reused_tokens: int = 0
    """First tokens of the prompt that were not computed, since an earlier request under the same weights had been."""
    prompt_logprobs_T: NDArray[np.float32] | None = None
    """NaN where not computed: always the first."""
    topk_prompt_tokens_TK: NDArray[np.int32] | None = None
    """Row t ranks the candidates for the token at t, most likely first; the first row is token 0 at -99999.0."""
    topk_prompt_logprobs_TK: NDArray[np.float32] | None = None
    target_logprobs_M: NDArray[np.float32] | None = None
    """Of the request's `prompt_targets`, at temperature 1."""
    error: Exception | None = None


class Engine(Protocol):
    """Trains adapters over shared frozen base models and samples from snapshots of them."""

    def base_models(self) -> Sequence[BaseModelInfo]:
        """Models loaded so far or named at start."""

    def load_base_model(self, name: str) -> BaseModelInfo:
        """Load a folder, hub id or embedded name; cheap when it is loaded already."""

    def create_model(self, model_id: str, base_model: str, lora: LoraSpec) -> None:
        """Add a run that leaves the base model's output unchanged; equal specs give equal adapters.

        Rank 0 trains a copy of all weights, in passes of its own: one run at a time per base model, refused with
        figures where memory does not suffice.
        """

    def delete_model(self, model_id: str) -> None:
        """Free a run's weights, gradient and optimizer state."""

    def forward_backward(self, requests: Sequence[ForwardBackward]) -> Sequence[ForwardBackwardOutput | Exception]:
        """Run several requests, in order, in as few passes as pay.

        One that is refused (`InputError`) or fails otherwise leaves no gradient behind, and the others as they are.
        """

    def optim_step(self, model_id: str, step: AdamStep) -> Mapping[str, float]:
        """Apply and clear the summed gradient. Metrics hold `grad_norm`, taken before clipping."""

    def save_state(self, model_id: str, folder: Path, *, with_optimizer: bool) -> None:
        """Write weights, and with an optimizer its moments and step count, into a new folder, atomically."""

    def copy_state(self, model_id: str, *, with_optimizer: bool) -> Callable[[Path], None] | None:
        """A copy of what `save_state` would write now, as a function that writes it. Safe in another thread.

        None where memory does not suffice for a copy.
        """

    def save_peft(self, model_id: str, folder: Path, *, base_name: str) -> None:
        """Write weights into a new folder, atomically, in the format of the `peft` library; `base_name` is what others
        call the base model.
        """

    def load_state(self, model_id: str, base_model: str, lora: LoraSpec, folder: Path, *, with_optimizer: bool) -> None:
        """Create `model_id`, or overwrite it, from a folder that `save_state` or `save_snapshot` wrote.

        Raises `DamagedError` where the folder is to blame, as does `load_snapshot`.
        """

    def snapshot(self, model_id: str, snapshot_id: str) -> None:
        """Fix a model's present weights under an id, for sampling. A copy in memory, no disk."""

    def save_snapshot(self, snapshot_id: str, folder: Path, *, is_durable: bool) -> None:
        """Write a snapshot into a new folder, atomically; durable: on the disk on return. Safe in another thread."""

    def load_snapshot(self, snapshot_id: str, base_model: str, lora: LoraSpec, folder: Path) -> None:
        """Read weights into a snapshot from a folder that `save_state` or `save_snapshot` wrote."""

    def snapshot_bytes(self, snapshot_id: str) -> int:
        """Memory that a snapshot takes."""

    def delete_snapshot(self, snapshot_id: str) -> None:
        """Free a snapshot once the samples that read it are done."""

    def submit_sample(self, request: SampleRequest) -> None:
        """Queue a request; one that can never fit is refused at once."""

    def cancel_sample(self, request_id: str) -> None:
        """Drop a request and free what it holds; unknown or finished ids are ignored."""

    def has_samples(self) -> bool:
        """Whether `step_samples` has anything to do."""

    def step_samples(self) -> Sequence[SampleOutput]:
        """Admit what fits, advance every running sequence by one token, and return the requests that finished.

        Before these stand the tokens of the step, of each request that is streamed.
        """
