"""An engine that computes nothing: each call takes fixed seconds, and its results follow from its commands.

Weights, moments and gradient of a model are hashes over all that made them, in order, so that a pass or step that was
lost, doubled or moved shows in the weights after the next step, in every metric after it, and in what is sampled.
T positions.
"""

import hashlib
import json
import shutil
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cookhouse.engine.contract import (
    AdamStep,
    BaseModelInfo,
    DamagedError,
    ForwardBackward,
    ForwardBackwardOutput,
    LoraSpec,
    MemoryUse,
    Room,
    SampledSequence,
    SampleOutput,
    SampleRequest,
)
from cookhouse.engine.engine import SampleFailure
from cookhouse.errors import InputError, UnknownNameError

VOCAB_SIZE = 1024
END_TOKEN = 0
MAX_CONTEXT_TOKENS = 32768
MEMORY_BYTES = 2**36
"""Always free: nothing is held."""
_HEX_OF_DOUBLE = 13
"""Digits of 52 bits, which a double holds exactly."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """Durations of calls, in seconds."""

    pass_seconds: float = 0.02
    """Of all the requests that run together."""
    pass_token_seconds: float = 1e-5
    step_seconds: float = 0.005
    decode_seconds: float = 0.002
    """One token of every sample under way."""
    decode_token_seconds: float = 1e-5
    prompt_token_seconds: float = 1e-6
    save_seconds: float = 0.01
    """Or to load, publish, create."""


USUAL = Costs()


class WorkerLostError(BaseException):
    """Raised by a fault to end the worker where it stands. No `Exception`: nothing in between may answer for it."""


Faults = Callable[[str], float]
"""Asked before each piece of work, by the name of its method: returns seconds to add, or raises why it fails."""


def no_faults(_method: str) -> float:
    return 0.0


@dataclass(frozen=True, slots=True)
class State:
    """Of a model: what sampling reads, what steps leave for later ones, and what passes have left since the last."""

    weights: str
    moments: str = ""
    gradient: str = ""


@dataclass(slots=True)
class _Model:
    base_model: str
    lora: LoraSpec
    state: State


@dataclass(slots=True)
class _Running:
    request: SampleRequest
    sequences: Sequence[SampledSequence]
    first_step: int

    @property
    def num_steps(self) -> int:
        return max(1, *(sequence.tokens_T.size for sequence in self.sequences))


class SimulatedEngine:
    """An `Engine`. `spend` lets seconds pass: `time.sleep`, or what moves a virtual clock."""

    def __init__(
        self,
        base_models: Sequence[str] = ("cookhouse/tiny",),
        *,
        costs: Costs = USUAL,
        spend: Callable[[float], None] = time.sleep,
        faults: Faults = no_faults,
    ) -> None:
        self._base_models = list(base_models)
        self._costs = costs
        self._spend = spend
        self._faults = faults
        self._models: dict[str, _Model] = {}
        self._snapshots: dict[str, str] = {}
        self._running: dict[str, _Running] = {}
        self._streamed: dict[str, _Running] = {}
        self._ending: defaultdict[int, list[str]] = defaultdict(list)
        """Requests by the decode step that is their last."""
        self._num_steps = 0
        self._prompt_tokens = 0
        """Of requests that came since the last decode step, which computes them."""

    def describe(self) -> str:
        return "nothing: it is simulated"

    def memory_use(self) -> MemoryUse:
        return MemoryUse()

    def room(self) -> Room:
        return Room(free_bytes=MEMORY_BYTES, base_models=tuple(self._base_models))

    def base_models(self) -> Sequence[BaseModelInfo]:
        return [self.load_base_model(name) for name in self._base_models]

    def load_base_model(self, name: str) -> BaseModelInfo:
        if name not in self._base_models:
            raise UnknownNameError("base model", name, self._base_models)
        return BaseModelInfo(
            name=name,
            tokenizer_id=name,
            architecture="simulated",
            vocab_size=VOCAB_SIZE,
            max_context_tokens=MAX_CONTEXT_TOKENS,
            max_lora_rank=64,
        )

    def create_model(self, model_id: str, base_model: str, lora: LoraSpec) -> None:
        self._work("create_model", self._costs.save_seconds)
        self._models[model_id] = _Model(base_model, lora, created(base_model, lora))

    def delete_model(self, model_id: str) -> None:
        del self._models[model_id]

    def forward_backward(self, requests: Sequence[ForwardBackward]) -> Sequence[ForwardBackwardOutput | Exception]:
        outputs: list[ForwardBackwardOutput | Exception] = []
        seconds = self._costs.pass_seconds
        for request in requests:
            try:
                seconds += self._faults("forward_backward")
                outputs.append(self._pass(request))
            except Exception as error:
                outputs.append(error)
            seconds += self._costs.pass_token_seconds * sum(datum.tokens_T.size for datum in request.data_D)
        self._spend(seconds)
        return outputs

    def _pass(self, request: ForwardBackward) -> ForwardBackwardOutput:
        model = self._model(request.model_id)
        shapes = [_targets(request, index).shape for index in range(len(request.data_D))]
        state = passed(model.state, request)
        if not request.forward_only:
            model.state = state
        return ForwardBackwardOutput(
            logprobs_D=[np.full(shape, -fraction(state), dtype=np.float32) for shape in shapes],
            metrics={"loss:sum": fraction(state)},
        )

    def optim_step(self, model_id: str, step: AdamStep) -> Mapping[str, float]:
        self._work("optim_step", self._costs.step_seconds)
        model = self._model(model_id)
        model.state = stepped(model.state, step)
        return {"grad_norm": fraction(model.state)}

    def state(self, model_id: str) -> State:
        """State of a model after all that changed it."""
        return self._model(model_id).state

    def save_state(self, model_id: str, folder: Path, *, with_optimizer: bool, with_gradient: bool = False) -> None:
        self.copy_state(model_id, with_optimizer=with_optimizer, with_gradient=with_gradient)(folder)

    def copy_state(self, model_id: str, *, with_optimizer: bool, with_gradient: bool = False) -> Callable[[Path], None]:
        self._work("copy_state", self._costs.save_seconds)
        content = asdict(self._model(model_id).state)
        if not with_optimizer:
            del content["moments"]
        if not with_gradient:
            del content["gradient"]
        return partial(self._write, content)

    def save_external(self, model_id: str, folder: Path, *, base_name: str) -> None:
        self._work("save_external", self._costs.save_seconds)
        self._write({"weights": self._model(model_id).state.weights, "base_model_name_or_path": base_name}, folder)

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
        self._work("load_state", self._costs.save_seconds)
        content = _read(folder)
        if with_optimizer and "moments" not in content:
            raise InputError(f"{folder.name} has weights only; load it without the optimizer")
        state = State(
            weights=content["weights"],
            moments=content["moments"] if with_optimizer else "",
            gradient=content.get("gradient", "") if with_gradient else "",
        )
        self._models[model_id] = _Model(base_model, lora, state)

    def snapshot(self, model_id: str, snapshot_id: str) -> None:
        self._work("snapshot", self._costs.save_seconds)
        self._snapshots[snapshot_id] = self._model(model_id).state.weights

    def copy_snapshot(self, snapshot_id: str, *, is_durable: bool) -> Callable[[Path], None]:  # noqa: ARG002
        return partial(self._write, {"weights": self._snapshots[snapshot_id]})

    def load_snapshot(self, snapshot_id: str, base_model: str, lora: LoraSpec, folder: Path) -> None:  # noqa: ARG002
        self._work("load_snapshot", self._costs.save_seconds)
        self._snapshots[snapshot_id] = _read(folder)["weights"]

    def snapshot_bytes(self, snapshot_id: str) -> int:
        return len(self._snapshots[snapshot_id])

    def delete_snapshot(self, snapshot_id: str) -> None:
        del self._snapshots[snapshot_id]

    def submit_sample(self, request: SampleRequest) -> None:
        room = MAX_CONTEXT_TOKENS - request.prompt_T.size
        if room <= 0:
            raise InputError(f"a prompt of {request.prompt_T.size} tokens does not fit {MAX_CONTEXT_TOKENS}")
        if request.scores_prompt or request.topk_sample_logprobs:
            raise InputError("a simulated engine has no logprobs of prompts, and ranks no tokens; ask for neither")
        if request.is_shaped or request.min_p:
            raise InputError("a simulated engine has no distribution; ask for no grammar, bias, penalty or min_p")
        self._work("submit_sample", 0.0)
        self._prompt_tokens += request.prompt_T.size
        running = _Running(request, sampled(request, self._weights(request)), self._num_steps)
        self._running[request.request_id] = running
        if request.is_streamed:
            self._streamed[request.request_id] = running
        self._ending[self._num_steps + running.num_steps].append(request.request_id)

    def cancel_sample(self, request_id: str) -> None:
        self._running.pop(request_id, None)
        self._streamed.pop(request_id, None)

    def has_samples(self) -> bool:
        return bool(self._running)

    def step_samples(self) -> Sequence[SampleOutput | SampleFailure]:
        self._num_steps += 1
        costs = self._costs
        prompt_seconds, self._prompt_tokens = costs.prompt_token_seconds * self._prompt_tokens, 0
        self._spend(costs.decode_seconds + costs.decode_token_seconds * len(self._running) + prompt_seconds)
        outputs: list[SampleOutput | SampleFailure] = []
        for request_id, running in self._streamed.items():
            newest = [_part(sequence, self._num_steps - running.first_step) for sequence in running.sequences]
            outputs.append(SampleOutput(request_id=request_id, is_partial=True, sequences=newest))
        for request_id in self._ending.pop(self._num_steps, ()):
            ended = self._running.get(request_id)
            if ended is None:
                continue  # canceled
            self.cancel_sample(request_id)
            try:
                self._work("step_samples", 0.0)
                outputs.append(SampleOutput(request_id=request_id, sequences=ended.sequences))
            except Exception as error:
                outputs.append(SampleFailure(request_id=request_id, error=error))
        return outputs

    def _work(self, method: str, seconds: float) -> None:
        """Let a piece of work take its time, or fail before it has changed anything."""
        self._spend(seconds + self._faults(method))

    def _write(self, content: Mapping[str, Any], folder: Path) -> None:
        """Fill a new folder as `new_folder` does; a worker that is lost in the midst leaves what there is of it."""
        if folder.exists():
            raise InputError(f"folder {folder} exists; choose another name")
        temporary = folder.with_name(f".{folder.name}.{uuid.uuid4().hex}")
        temporary.mkdir(parents=True)
        try:
            (temporary / "state.json").write_text(json.dumps(content), encoding="utf-8")
            self._faults("write")
            temporary.rename(folder)
        except Exception:
            shutil.rmtree(temporary)
            raise

    def _model(self, model_id: str) -> _Model:
        if model_id not in self._models:
            raise InputError(f"no model {model_id!r}")
        return self._models[model_id]

    def _weights(self, request: SampleRequest) -> str:
        if request.snapshot_id is None:
            return request.base_model
        if request.snapshot_id not in self._snapshots:
            raise InputError(f"no snapshot {request.snapshot_id!r}")
        return self._snapshots[request.snapshot_id]


def created(base_model: str, lora: LoraSpec) -> State:
    """The state of a new model."""
    return State(weights=_chained("", base_model, *astuple(lora)))


def passed(state: State, request: ForwardBackward) -> State:
    """The state after a pass, which hashes all that is in it."""
    content: list[object] = [request.loss_fn, *sorted(request.loss_fn_config.items())]
    for datum in request.data_D:
        content += [
            datum.tokens_T.tobytes(),
            *((name, a.tobytes()) for name, a in sorted(datum.loss_fn_inputs.items())),
        ]
    return replace(state, gradient=_chained(state.gradient, state.weights, *content))


def stepped(state: State, step: AdamStep) -> State:
    """The state after an optimizer step."""
    moments = _chained(state.moments, state.gradient, *astuple(step))
    return State(weights=_chained(state.weights, moments), moments=moments)


def fraction(state: State) -> float:
    """A state as a number of [0, 1), which the wire carries exactly: the loss of a pass, the norm of a step."""
    return float(int(_chained(state.weights, state.moments, state.gradient)[:_HEX_OF_DOUBLE], 16)) / 2.0**52


def sampled(request: SampleRequest, weights: str) -> Sequence[SampledSequence]:
    """Sequences of a request under weights, of which only their hash is known."""
    room = MAX_CONTEXT_TOKENS - request.prompt_T.size
    limit = room if request.max_tokens is None else min(room, request.max_tokens)
    digest = hashlib.blake2b(f"{weights} {request.seed}".encode(), digest_size=8)
    digest.update(request.prompt_T.tobytes())
    first = int.from_bytes(digest.digest(), "little")
    return [_sequence(first + index * 2**32, limit, request.stop) for index in range(request.num_samples)]


def _sequence(seed: int, limit: int, stop: Sequence[str | int] | None) -> SampledSequence:
    mixed_T = np.arange(limit, dtype=np.uint64) + np.uint64(seed % 2**64)
    mixed_T *= np.uint64(0x9E3779B97F4A7C15)  # Fibonacci hashing: the upper bits are mixed
    tokens_T = (mixed_T >> np.uint64(40)).astype(np.int32) % VOCAB_SIZE
    ends = [END_TOKEN] if stop is None else [each for each in stop if isinstance(each, int)]
    found = [int(np.argmax(is_end_T)) for end in ends if (is_end_T := tokens_T == end).any()]
    if found:
        tokens_T = tokens_T[: min(found) + 1]
    logprobs_T = np.full(tokens_T.size, -1.0, dtype=np.float32)
    return SampledSequence(tokens_T=tokens_T, logprobs_T=logprobs_T, is_stopped=bool(found))


def _part(sequence: SampledSequence, num_tokens: int) -> SampledSequence:
    """The last of its first tokens: none where it has ended before."""
    newest = slice(num_tokens - 1, num_tokens)
    is_stopped = sequence.is_stopped and num_tokens >= sequence.tokens_T.size
    return SampledSequence(
        tokens_T=sequence.tokens_T[newest], logprobs_T=sequence.logprobs_T[newest], is_stopped=is_stopped
    )


def _targets(request: ForwardBackward, index: int) -> NDArray[Any]:
    inputs = request.data_D[index].loss_fn_inputs
    if "target_tokens" not in inputs:
        raise InputError(f"datum {index} has no target_tokens")
    return inputs["target_tokens"]


def _chained(before: str, *changes: object) -> str:
    return hashlib.blake2b(repr((before, changes)).encode(), digest_size=16).hexdigest()


def _read(folder: Path) -> Any:
    try:
        return json.loads((folder / "state.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DamagedError(f"the files of {folder.name} cannot be read") from error
