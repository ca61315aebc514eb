"""A deterministic engine of a few NumPy lines: a bigram table that is frozen, and a bias per token that is trained.

V vocabulary, T positions, K candidates.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cookhouse.engine.contract import (
    AdamStep,
    BaseModelInfo,
    ForwardBackward,
    ForwardBackwardOutput,
    LoraSpec,
    MemoryUse,
    Room,
    SampledSequence,
    SampleOutput,
    SampleRequest,
    TrainingDatum,
)
from cookhouse.errors import InputError, UnknownNameError
from cookhouse.files import make_folder

VOCAB_SIZE = 64
END_TOKEN = 0
MAX_CONTEXT_TOKENS = 128
FREE_BYTES = 2**30
Floats = NDArray[np.float64]


@dataclass
class _Model:
    base_model: str
    lora: LoraSpec
    bias_V: Floats = field(default_factory=lambda: np.zeros(VOCAB_SIZE))
    gradient_V: Floats = field(default_factory=lambda: np.zeros(VOCAB_SIZE))
    moment1_V: Floats = field(default_factory=lambda: np.zeros(VOCAB_SIZE))
    moment2_V: Floats = field(default_factory=lambda: np.zeros(VOCAB_SIZE))
    num_steps: int = 0


@dataclass
class _Running:
    request: SampleRequest
    bias_V: Floats
    tokens: list[list[int]]
    logprobs: list[list[float]]
    stopped: list[bool]
    ranked: list[list[NDArray[np.int64]]]
    ranked_logprobs: list[list[Floats]]


class FakeEngine:
    """Does what the contract says, at once. `calls` records the methods that change something, in order."""

    def __init__(self, base_models: Sequence[str] = ("cookhouse/tiny",)) -> None:
        self._base_models = list(base_models)
        self._models: dict[str, _Model] = {}
        self._snapshots: dict[str, Floats] = {}
        self._running: list[_Running] = []
        self._bigrams_VV = np.random.default_rng(7).normal(size=(VOCAB_SIZE, VOCAB_SIZE))
        self.calls: list[tuple[str, Any]] = []

    def describe(self) -> str:
        return "a fake"

    def memory_use(self) -> MemoryUse:
        return MemoryUse()

    def room(self) -> Room:
        return Room(free_bytes=FREE_BYTES, base_models=tuple(self._base_models))

    def base_models(self) -> Sequence[BaseModelInfo]:
        return [self.load_base_model(name) for name in self._base_models]

    def load_base_model(self, name: str) -> BaseModelInfo:
        if name not in self._base_models:
            raise UnknownNameError("base model", name, self._base_models)
        return BaseModelInfo(
            name=name,
            tokenizer_id=name,
            architecture="fake",
            vocab_size=VOCAB_SIZE,
            max_context_tokens=MAX_CONTEXT_TOKENS,
            max_lora_rank=64,
        )

    def create_model(self, model_id: str, base_model: str, lora: LoraSpec) -> None:
        self.calls.append(("create_model", model_id))
        self._models[model_id] = _Model(base_model, lora)

    def delete_model(self, model_id: str) -> None:
        self.calls.append(("delete_model", model_id))
        del self._models[model_id]

    def forward_backward(self, requests: Sequence[ForwardBackward]) -> Sequence[ForwardBackwardOutput | InputError]:
        self.calls.append(("forward_backward", [request.model_id for request in requests]))
        outputs: list[ForwardBackwardOutput | InputError] = []
        for request in requests:
            try:
                outputs.append(self._pass(request))
            except InputError as error:
                outputs.append(error)
        return outputs

    def _pass(self, request: ForwardBackward) -> ForwardBackwardOutput:
        model = self._model(request.model_id)
        if request.loss_fn != "cross_entropy":
            raise UnknownNameError("loss", request.loss_fn, ["cross_entropy"])
        for index, datum in enumerate(request.data_D):
            _check(datum, index)
        gradient_V = np.zeros(VOCAB_SIZE)
        loss = 0.0
        logprobs_D = []
        for datum in request.data_D:
            targets = datum.loss_fn_inputs["target_tokens"].astype(np.int64)
            weights = datum.loss_fn_inputs.get("weights", np.ones(targets.shape, dtype=np.float32))
            logprobs_TV = self._score(datum.tokens_T, model.bias_V)
            columns = targets.reshape(len(targets), -1)
            logprobs = np.take_along_axis(logprobs_TV, columns, axis=1).reshape(targets.shape)
            loss -= float((weights * logprobs).sum())
            weights_T = weights.reshape(len(targets), -1).sum(axis=1)
            gradient_V += (weights_T[:, None] * np.exp(logprobs_TV)).sum(axis=0)
            np.subtract.at(gradient_V, targets.ravel(), weights.ravel())
            logprobs_D.append(logprobs.astype(np.float32))
        if not request.forward_only:
            model.gradient_V += gradient_V
        return ForwardBackwardOutput(logprobs_D=logprobs_D, metrics={"loss:sum": loss})

    def optim_step(self, model_id: str, step: AdamStep) -> Mapping[str, float]:
        self.calls.append(("optim_step", model_id))
        model = self._model(model_id)
        norm = float(np.linalg.norm(model.gradient_V))
        model.num_steps += 1
        model.moment1_V = step.beta1 * model.moment1_V + (1 - step.beta1) * model.gradient_V
        model.moment2_V = step.beta2 * model.moment2_V + (1 - step.beta2) * model.gradient_V**2
        mean = model.moment1_V / (1 - step.beta1**model.num_steps)
        square = model.moment2_V / (1 - step.beta2**model.num_steps)
        model.bias_V = model.bias_V - step.learning_rate * mean / (np.sqrt(square) + step.eps)
        model.gradient_V = np.zeros(VOCAB_SIZE)
        return {"grad_norm": norm}

    def save_state(self, model_id: str, folder: Path, *, with_optimizer: bool, with_gradient: bool = False) -> None:
        self.calls.append(("save_state", model_id))
        write = self.copy_state(model_id, with_optimizer=with_optimizer, with_gradient=with_gradient)
        assert write is not None
        write(folder)

    def copy_state(
        self, model_id: str, *, with_optimizer: bool, with_gradient: bool = False
    ) -> Callable[[Path], None] | None:
        self.calls.append(("copy_state", model_id))
        model = self._model(model_id)
        arrays = {"bias": model.bias_V.tolist()}
        if with_optimizer:
            arrays |= {"moment1": model.moment1_V.tolist(), "moment2": model.moment2_V.tolist()}
        if with_gradient:
            arrays |= {"gradient": model.gradient_V.tolist()}
        content = {"lora": asdict(model.lora), "num_steps": model.num_steps, **arrays}

        def write(folder: Path) -> None:
            make_folder(folder)
            (folder / "state.json").write_text(json.dumps(content))

        return write

    def save_external(self, model_id: str, folder: Path, *, base_name: str) -> None:
        self.calls.append(("save_external", model_id))
        model = self._model(model_id)
        make_folder(folder)
        (folder / "adapter_config.json").write_text(
            json.dumps({"r": model.lora.rank, "lora_alpha": 32, "base_model_name_or_path": base_name})
        )
        (folder / "adapter_model.safetensors").write_bytes(model.bias_V.tobytes())

    def load_state(
        self,
        model_id: str,
        base_model: str,
        lora: LoraSpec,
        folder: Path,
        *,
        with_optimizer: bool,
        with_gradient: bool = False,
    ) -> None:
        self.calls.append(("load_state", model_id))
        content = json.loads((folder / "state.json").read_text())
        model = _Model(base_model, lora, bias_V=np.array(content["bias"]))
        if with_optimizer:
            model.moment1_V, model.moment2_V = np.array(content["moment1"]), np.array(content["moment2"])
            model.num_steps = content["num_steps"]
        if with_gradient and "gradient" in content:
            model.gradient_V = np.array(content["gradient"])
        self._models[model_id] = model

    def snapshot(self, model_id: str, snapshot_id: str) -> None:
        self.calls.append(("snapshot", snapshot_id))
        self._snapshots[snapshot_id] = self._model(model_id).bias_V.copy()

    def copy_snapshot(self, snapshot_id: str, *, is_durable: bool) -> Callable[[Path], None]:  # noqa: ARG002
        bias_V = self._snapshots[snapshot_id]

        def write(folder: Path) -> None:
            make_folder(folder)
            (folder / "state.json").write_text(json.dumps({"bias": bias_V.tolist()}))

        return write

    def load_snapshot(self, snapshot_id: str, base_model: str, lora: LoraSpec, folder: Path) -> None:  # noqa: ARG002
        self.calls.append(("load_snapshot", snapshot_id))
        self._snapshots[snapshot_id] = np.array(json.loads((folder / "state.json").read_text())["bias"])

    def snapshot_bytes(self, snapshot_id: str) -> int:
        return self._snapshots[snapshot_id].nbytes

    def delete_snapshot(self, snapshot_id: str) -> None:
        self.calls.append(("delete_snapshot", snapshot_id))
        del self._snapshots[snapshot_id]

    def submit_sample(self, request: SampleRequest) -> None:
        if int(request.prompt_T.max()) >= VOCAB_SIZE:
            raise InputError(f"token {request.prompt_T.max()} is outside the vocabulary of {VOCAB_SIZE}")
        targets = request.prompt_targets
        if targets is not None and (targets.tokens_M >= VOCAB_SIZE).any():
            raise InputError(f"target_prompt_logprobs holds {targets.tokens_M.max()}, outside the vocabulary")
        if len(request.prompt_T) >= MAX_CONTEXT_TOKENS:
            raise InputError(f"a prompt of {len(request.prompt_T)} tokens does not fit {MAX_CONTEXT_TOKENS}")
        num_ranked = max(request.topk_prompt_logprobs, request.topk_sample_logprobs)
        if num_ranked > VOCAB_SIZE:
            raise InputError(f"{num_ranked} candidates at each position, of a vocabulary of {VOCAB_SIZE}")
        bias_V = np.zeros(VOCAB_SIZE) if request.snapshot_id is None else self._snapshots[request.snapshot_id]
        empty = range(request.num_samples)
        self._running.append(
            _Running(
                request,
                bias_V,
                tokens=[[] for _ in empty],
                logprobs=[[] for _ in empty],
                stopped=[False for _ in empty],
                ranked=[[] for _ in empty],
                ranked_logprobs=[[] for _ in empty],
            )
        )

    def cancel_sample(self, request_id: str) -> None:
        self.calls.append(("cancel_sample", request_id))
        self._running = [running for running in self._running if running.request.request_id != request_id]

    def has_samples(self) -> bool:
        return bool(self._running)

    def step_samples(self) -> Sequence[SampleOutput]:
        outputs = []
        for running in list(self._running):
            are_new = [self._advance(running, index) for index in range(running.request.num_samples)]
            if not any(are_new):
                self._running.remove(running)
                outputs.append(self._output(running))
            elif running.request.is_streamed:
                whole = self._output(running)
                newest = [_last(one, int(is_new)) for one, is_new in zip(whole.sequences, are_new, strict=True)]
                outputs.append(replace(whole, sequences=newest, is_partial=True))
        return outputs

    def _advance(self, running: _Running, index: int) -> bool:
        """Draw one token; False if the sequence is at its end."""
        request, tokens = running.request, running.tokens[index]
        room = MAX_CONTEXT_TOKENS - len(request.prompt_T)
        limit = room if request.max_tokens is None else min(room, request.max_tokens)
        if running.stopped[index] or len(tokens) >= limit:
            return False
        last = tokens[-1] if tokens else int(request.prompt_T[-1])
        logprobs_V = self._score(np.array([last]), running.bias_V)[0]
        if request.temperature == 0:
            token = int(logprobs_V.argmax())
        else:
            scores_V = logprobs_V / request.temperature
            if request.top_k > 0:
                scores_V[np.argsort(scores_V)[: -request.top_k]] = -np.inf
            noise_V = np.random.default_rng([request.seed, index, len(tokens)]).gumbel(size=VOCAB_SIZE)
            token = int((scores_V + noise_V).argmax())
        tokens.append(token)
        running.ranked[index].append(np.argsort(-logprobs_V)[: request.topk_sample_logprobs])
        running.ranked_logprobs[index].append(np.sort(-logprobs_V)[: request.topk_sample_logprobs] * -1)
        running.logprobs[index].append(float(logprobs_V[token]))
        running.stopped[index] = _is_stop(request.stop, tokens)
        return True

    def _output(self, running: _Running) -> SampleOutput:
        request = running.request
        sequences = [
            SampledSequence(
                tokens_T=np.array(tokens, dtype=np.int32),
                logprobs_T=np.array(logprobs, dtype=np.float32),
                is_stopped=stopped,
                topk_tokens_TK=np.array(ranked, dtype=np.int32) if request.topk_sample_logprobs else None,
                topk_logprobs_TK=np.array(scores, dtype=np.float32) if request.topk_sample_logprobs else None,
            )
            for tokens, logprobs, stopped, ranked, scores in zip(
                running.tokens,
                running.logprobs,
                running.stopped,
                running.ranked,
                running.ranked_logprobs,
                strict=True,
            )
        ]
        logprobs_TV = self._score(request.prompt_T[:-1], running.bias_V)
        prompt_logprobs_T = topk_tokens_TK = topk_logprobs_TK = None
        if request.prompt_logprobs:
            chosen = logprobs_TV[np.arange(len(logprobs_TV)), request.prompt_T[1:]]
            prompt_logprobs_T = np.concatenate([[np.nan], chosen]).astype(np.float32)
        if k := request.topk_prompt_logprobs:
            best = np.argsort(-logprobs_TV, axis=1)[:, :k]
            topk_tokens_TK = np.concatenate([np.zeros((1, k)), best]).astype(np.int32)
            values = np.take_along_axis(logprobs_TV, best, axis=1)
            topk_logprobs_TK = np.concatenate([np.full((1, k), -99999.0), values]).astype(np.float32)
        targets = request.prompt_targets
        return SampleOutput(
            request_id=request.request_id,
            target_logprobs_M=None
            if targets is None
            else logprobs_TV[targets.positions_M - 1, targets.tokens_M].astype(np.float32),
            sequences=sequences,
            prompt_logprobs_T=prompt_logprobs_T,
            topk_prompt_tokens_TK=topk_tokens_TK,
            topk_prompt_logprobs_TK=topk_logprobs_TK,
        )

    def _score(self, tokens_T: NDArray[np.int64], bias_V: Floats) -> Floats:
        logits_TV: Floats = self._bigrams_VV[tokens_T] + bias_V
        normalizers_T1: Floats = np.log(np.exp(logits_TV).sum(axis=1, keepdims=True))
        return logits_TV - normalizers_T1

    def _model(self, model_id: str) -> _Model:
        if model_id not in self._models:
            raise UnknownNameError("model", model_id, self._models)
        return self._models[model_id]


def _last(sequence: SampledSequence, count: int) -> SampledSequence:
    start = len(sequence.tokens_T) - count
    topk_tokens_TK, topk_logprobs_TK = sequence.topk_tokens_TK, sequence.topk_logprobs_TK
    return replace(
        sequence,
        tokens_T=sequence.tokens_T[start:],
        logprobs_T=sequence.logprobs_T[start:],
        is_stopped=sequence.is_stopped and count > 0,
        topk_tokens_TK=None if topk_tokens_TK is None else topk_tokens_TK[start:],
        topk_logprobs_TK=None if topk_logprobs_TK is None else topk_logprobs_TK[start:],
    )


def _check(datum: TrainingDatum, index: int) -> None:
    targets = datum.loss_fn_inputs.get("target_tokens")
    if targets is None:
        raise InputError(f"datum {index}: target_tokens is missing")
    if len(targets) != len(datum.tokens_T):
        raise InputError(f"datum {index}: {len(datum.tokens_T)} tokens, but target_tokens of shape {targets.shape}")
    for tokens in (datum.tokens_T, targets):
        outside = tokens[(tokens < 0) | (tokens >= VOCAB_SIZE)]
        if outside.size:
            raise InputError(f"datum {index}: token {outside[0]} is outside the vocabulary of {VOCAB_SIZE}")
    weights = datum.loss_fn_inputs.get("weights")
    if weights is not None and weights.shape != targets.shape:
        raise InputError(f"datum {index}: weights of shape {weights.shape}, target_tokens of {targets.shape}")
    if weights is not None and not np.isfinite(weights).all():
        raise InputError(f"datum {index}: weights must be finite")


def _is_stop(stop: Sequence[str | int] | None, tokens: Sequence[int]) -> bool:
    """Token t reads as the character after t blanks of the ASCII table."""
    if tokens[-1] == END_TOKEN and (stop is None or stop):
        return True
    text = "".join(chr(32 + token) for token in tokens)
    return any(text.endswith(one) if isinstance(one, str) else tokens[-1] == one for one in stop or ())
