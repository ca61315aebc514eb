"""Requests to a worker's engine and its answers: frozen values of str, int, float, bool and NumPy arrays."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from cookhouse.errors import InputError
from cookhouse.losses import pair_losses
from cookhouse.losses.bounds import ADAM

_OBJECT_BYTES = 1024
"""Bytes that a list or an array takes besides its values, roughly."""
PAIR_LOSSES = tuple(name for name, loss in pair_losses.BUILT_IN_PAIR_LOSSES.items() if not loss.compares_batch)
"""Losses over pairs of datums (chosen, rejected, chosen, ...), besides those over tokens."""


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
    num_bytes: int = 0
    """Of its weights in memory; 0: not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoraSpec:
    """Weights that a run trains: an adapter of this shape, or with rank 0 every weight of the base model.

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

    def check(self) -> None:
        """Raises `InputError` for a value out of its bounds, and for a decay by more than all of a weight."""
        for name, bound in ADAM.items():
            bound.check(name, getattr(self, name))
        if self.learning_rate * self.weight_decay > 1.0:
            raise InputError(
                f"weight_decay is {self.weight_decay} with a learning_rate of {self.learning_rate}; that part of each "
                "weight goes in a step, and their product must be at most 1"
            )


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

    @property
    def num_bytes(self) -> int:
        """Memory that it takes."""
        arrays = (array for datum in self.data_D for array in (datum.tokens_T, *datum.loss_fn_inputs.values()))
        return _OBJECT_BYTES * len(self.data_D) + sum(_OBJECT_BYTES + array.nbytes for array in arrays)


@dataclass(frozen=True, slots=True, kw_only=True)
class ForwardBackwardOutput:
    """`logprobs_D[i]` is float32 in the shape of datum i's `target_tokens`. Of `PAIR_LOSSES` it is two values that add
    up, in double precision, to Σ w·logprob, and behind them, where `token_logprobs` is 1, the logprobs of the targets
    that have weight. Metric keys are `name:reduction`.
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
    seed: int
    """Sample i of a request uses (seed, i): tokens depend on no neighbors in the batch, and are the same again."""
    owner: str = ""
    """Requests of different owners share no cached prefix: how fast one is answered shows nothing of the others'.
    Owners take turns, then the sessions of an owner.
    """
    session_id: str = ""
    num_samples: int = 1
    max_tokens: int | None = None
    """None: up to the model's context."""
    temperature: float = 1.0
    """0 is greedy."""
    top_k: int = -1
    top_p: float = 1.0
    min_p: float = 0.0
    """Tokens are left out that are less likely than this share of the likeliest one's probability."""
    stop: Sequence[str | int] | None = None
    """Texts or tokens that end a sample besides the model's end tokens; empty: only `max_tokens` ends it."""
    ignore_eos: bool = False
    """True if the model's end tokens end nothing unless `stop` names them."""
    min_tokens: int = 0
    """Nothing ends a sample before it has as many tokens: end tokens are not drawn."""
    frequency_penalty: float = 0.0
    """Less logit for each time that a token was sampled."""
    presence_penalty: float = 0.0
    """Less logit for a token that was sampled."""
    repetition_penalty: float = 1.0
    """Divisor of a logit above 0, factor of one below, for tokens of the prompt and of the sample
    (https://arxiv.org/abs/1909.05858)."""
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    """Added to the logits of tokens."""
    grammar: str | None = None
    """All that a sample may be, in the serialized form of llguidance; it is over where nothing more may follow."""
    prompt_logprobs: bool = False
    topk_prompt_logprobs: int = 0
    topk_sample_logprobs: int = 0
    prompt_targets: PromptTargets | None = None
    is_streamed: bool = False
    """True if its tokens are sent as they come, as well as the whole at its end."""

    @property
    def scores_prompt(self) -> bool:
        """True if anything is asked about the prompt's positions, so that they have to be computed."""
        return self.prompt_logprobs or self.topk_prompt_logprobs > 0 or self.prompt_targets is not None

    @property
    def has_penalties(self) -> bool:
        """True if tokens that were there before are made less likely, or likelier."""
        return (self.frequency_penalty, self.presence_penalty, self.repetition_penalty) != (0, 0, 1)

    @property
    def is_shaped(self) -> bool:
        """True if the distribution sampled from, before what filters it, may not be the model's own."""
        return self.grammar is not None or self.min_tokens > 0 or bool(self.logit_bias) or self.has_penalties

    @property
    def num_bytes(self) -> int:
        """Memory that it takes."""
        stops = sum(len(stop) if isinstance(stop, str) else 32 for stop in self.stop or ())
        targets = 0 if self.prompt_targets is None else 16 * len(self.prompt_targets.tokens_M)
        shape = 64 * len(self.logit_bias) + len(self.grammar or "")
        return _OBJECT_BYTES + self.prompt_T.nbytes + stops + targets + shape


@dataclass(frozen=True, slots=True, kw_only=True)
class SampledSequence:
    """Tokens include the stop token, or those that complete a stop string. `logprobs_T` are of the distribution sampled
    from before top-k, top-p and min-p, so at temperature 1 they equal the trainer's unless the request `is_shaped`;
    greedy reports temperature 1.
    """

    tokens_T: NDArray[np.int32]
    logprobs_T: NDArray[np.float32]
    is_stopped: bool
    """False when `max_tokens` or the context ended it."""
    topk_tokens_TK: NDArray[np.int32] | None = None
    """Row t ranks the candidates for the sampled token t, most likely first."""
    topk_logprobs_TK: NDArray[np.float32] | None = None
    """Of the distribution that `logprobs_T` are of."""
    free_logprobs_T: NDArray[np.float32] | None = None
    """Of the model's own distribution, with no grammar, bias or penalty; None: `logprobs_T` are."""
    is_masked_T: NDArray[np.bool_] | None = None
    """True where a grammar or `min_tokens` took away tokens that had more than 1e-6 of the probability."""
    is_grammar_end: bool = False
    """True if the grammar ended it, by a token that is none of those that stop: the end mark was not sampled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleOutput:
    """Output of a request: the whole, or one step of it."""

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
