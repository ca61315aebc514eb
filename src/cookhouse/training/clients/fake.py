"""A training service in memory, for tests and for trying a recipe without one.

It keeps the real one's promises: requests of a model take effect in the order submitted, saved state restores exactly,
a sampling client keeps its weights. What it computes is made up, and says so: the "model" is one number per token
bucket, log p(token) = log σ(θ[token mod 512] - 2), and every metric it returns has `synthetic` next to it.
"""

import copy
import zlib
from collections import Counter
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, TypeVar

import numpy as np
import tinker
from numpy.typing import NDArray

from cookhouse.data.batches.datum import tokens_and_images
from cookhouse.errors import InputError
from cookhouse.extras import require_engine
from cookhouse.training.clients.client import LossFunction, PairLossOffer
from cookhouse.training.clients.fake_losses import token_losses

_NUM_BUCKETS = 512
_PEFT = "tinker://peft-"
_T = TypeVar("_T")

Answer = Callable[[NDArray[np.float64], Sequence[int], np.random.Generator], Sequence[int]]
"""Sampled tokens, from the weights, the prompt's tokens and a source of chance seeded by the request."""
Gate = Callable[[str, int], Awaitable[None]]
"""Awaited before an answer is given, with the request's kind and number; may wait, or raise what the request raises."""


@dataclass(frozen=True, kw_only=True)
class Call:
    """A request as it was submitted, or as its answer was collected."""

    phase: Literal["submit", "finish"]
    kind: str
    number: int
    """Counts the requests of this kind from 0."""


@dataclass(kw_only=True)
class FakeState:
    """One model: weights, gradient and Adam's moments."""

    theta: NDArray[np.float64]
    gradient: NDArray[np.float64] = field(default_factory=lambda: np.zeros(_NUM_BUCKETS))
    moment1: NDArray[np.float64] = field(default_factory=lambda: np.zeros(_NUM_BUCKETS))
    moment2: NDArray[np.float64] = field(default_factory=lambda: np.zeros(_NUM_BUCKETS))
    num_steps: int = 0


def _last_token_thrice(
    theta: NDArray[np.float64],  # noqa: ARG001
    prompt_T: Sequence[int],
    chance: np.random.Generator,  # noqa: ARG001
) -> Sequence[int]:
    return [prompt_T[-1]] * 3


async def _open_gate(kind: str, number: int) -> None:  # noqa: ARG001
    return


class FakeService:
    """Fits `cookhouse.training.ServiceClient`. `calls` records the order of everything; `states` outlives a session.

    `seed` is mixed into those of models and samples; None leaves them as they are asked for.
    """

    synthetic = True

    def __init__(
        self,
        *,
        states: dict[str, FakeState] | None = None,
        answer: Answer = _last_token_thrice,
        gate: Gate = _open_gate,
        max_context_tokens: int | None = None,
        seed: int | None = None,
    ) -> None:
        self.states: dict[str, FakeState] = {} if states is None else states
        self.calls: list[Call] = []
        self.closed_with: str | None = None
        self.answer = answer
        self.gate = gate
        self.max_context_tokens = max_context_tokens
        self._seed = seed
        self._num_calls: Counter[str] = Counter()

    async def connect(self) -> "FakeService":
        """Fits `cookhouse.training.Connect`."""
        return self

    def create_lora_training_client(
        self,
        base_model: str,
        rank: int = 32,
        seed: int | None = None,
        train_mlp: bool = True,
        train_attn: bool = True,
        train_unembed: bool = True,
        user_metadata: dict[str, str] | None = None,
    ) -> "Awaitable[FakeTrainingClient]":
        del base_model, rank, train_mlp, train_attn, train_unembed, user_metadata
        theta = self.chance(seed).normal(scale=0.1, size=_NUM_BUCKETS)
        return self.request("create_model", FakeTrainingClient(self, FakeState(theta=theta)))

    def create_training_client_from_state(
        self, path: str, *, user_metadata: dict[str, str] | None = None
    ) -> "Awaitable[FakeTrainingClient]":
        del user_metadata
        state = FakeState(theta=self.state(path).theta.copy())
        return self.request("load_weights", FakeTrainingClient(self, state))

    def create_training_client_from_state_with_optimizer(
        self, path: str, *, user_metadata: dict[str, str] | None = None
    ) -> "Awaitable[FakeTrainingClient]":
        del user_metadata
        return self.request("load_state", FakeTrainingClient(self, copy.deepcopy(self.state(path))))

    def create_sampling_client(
        self, model_path: str | None = None, base_model: str | None = None
    ) -> "Awaitable[FakeSamplingClient]":
        del base_model
        theta = np.zeros(_NUM_BUCKETS) if model_path is None else self.state(model_path).theta.copy()
        return self.request("create_sampling_client", FakeSamplingClient(self, theta))

    async def context_tokens(self, model_name: str) -> int | None:
        del model_name
        return self.max_context_tokens

    async def delete_checkpoint(self, path: str) -> None:
        self.state(path)
        await self.request("delete_checkpoint", self.states.pop(path))

    async def pair_losses(self) -> PairLossOffer:
        return PairLossOffer()

    def close(self, status: Literal["success", "errored", "interrupted"], detail: str | None = None) -> Awaitable[None]:
        del detail
        self.closed_with = status
        return self.request("close", None)

    def state(self, path: str) -> FakeState:
        """State that was saved, or is made up for a PEFT folder. Raises `InputError` if there is nothing."""
        if path not in self.states and path.startswith(_PEFT):
            theta = np.random.default_rng(zlib.crc32(path.encode())).normal(scale=0.1, size=_NUM_BUCKETS)
            return FakeState(theta=theta)
        if path not in self.states:
            raise InputError(
                f"there is no checkpoint {path} in this made-up service, which keeps them in memory only; start the "
                "run again (behavior_if_log_dir_exists=delete)"
            )
        return self.states[path]

    def chance(self, *seeds: int | None) -> np.random.Generator:
        """Generator that the seeds of a request stand for here."""
        if self._seed is None and len(seeds) == 1:
            return np.random.default_rng(seeds[0])
        mixed = [*([] if self._seed is None else [self._seed]), *(seed or 0 for seed in seeds)]
        return np.random.default_rng(mixed)

    def request(self, kind: str, value: _T) -> "FakeFuture[_T]":
        """Record a request and return its future."""
        number = self._num_calls[kind]
        self._num_calls[kind] += 1
        self.calls.append(Call(phase="submit", kind=kind, number=number))
        return FakeFuture(self, kind, number, value)


class FakeFuture(Generic[_T]):
    """An answer that is computed already and given when awaited."""

    def __init__(self, service: FakeService, kind: str, number: int, value: _T) -> None:
        self._service = service
        self._kind = kind
        self._number = number
        self._value = value

    async def _collect(self) -> _T:
        await self._service.gate(self._kind, self._number)
        self._service.calls.append(Call(phase="finish", kind=self._kind, number=self._number))
        return self._value

    def __await__(self) -> Generator[Any, None, _T]:
        return self._collect().__await__()


class FakeTrainingClient:
    """Fits `cookhouse.training.TrainingClient`."""

    def __init__(self, service: FakeService, state: FakeState) -> None:
        self._service = service
        self._state = state
        self._num_saved = len(service.states)

    def forward(
        self, data: list[tinker.Datum], loss_fn: str, loss_fn_config: Mapping[str, float | str] | None = None
    ) -> "FakeFuture[tinker.ForwardBackwardOutput]":
        return self._service.request("forward", _output(self._state.theta, data, loss_fn, loss_fn_config)[0])

    def forward_backward(
        self, data: list[tinker.Datum], loss_fn: str, loss_fn_config: Mapping[str, float | str] | None = None
    ) -> "FakeFuture[tinker.ForwardBackwardOutput]":
        output, gradient = _output(self._state.theta, data, loss_fn, loss_fn_config)
        self._state.gradient += gradient
        return self._service.request("forward_backward", output)

    def forward_backward_custom(
        self, data: list[tinker.Datum], loss_fn: LossFunction
    ) -> "FakeFuture[tinker.ForwardBackwardOutput]":
        require_engine("a loss that is computed here", ["torch"])
        import torch

        weightless = [_with_weights(datum, np.zeros(datum.model_input.length)) for datum in data]
        forward, _ = _output(self._state.theta, weightless, "cross_entropy", None)
        logprobs_D_T = [
            torch.tensor(fields["logprobs"].to_numpy(), requires_grad=True) for fields in forward.loss_fn_outputs
        ]
        loss, metrics = loss_fn(data, logprobs_D_T)
        gradients = torch.autograd.grad(loss, logprobs_D_T)
        linear = [_with_weights(datum, -gradient.numpy()) for datum, gradient in zip(data, gradients, strict=True)]
        output, gradient = _output(self._state.theta, linear, "cross_entropy", None)
        self._state.gradient += gradient
        reported = {**metrics, "loss:sum": float(loss.detach()), "synthetic:max": 1.0}
        output = tinker.ForwardBackwardOutput(
            loss_fn_output_type=output.loss_fn_output_type, loss_fn_outputs=output.loss_fn_outputs, metrics=reported
        )
        return self._service.request("forward_backward_custom", output)

    def optim_step(self, optim_params: tinker.AdamParams) -> "FakeFuture[tinker.OptimStepResponse]":
        state, adam = self._state, optim_params
        gradient, state.gradient = state.gradient, np.zeros(_NUM_BUCKETS)
        state.num_steps += 1
        state.moment1 = adam.beta1 * state.moment1 + (1 - adam.beta1) * gradient
        state.moment2 = adam.beta2 * state.moment2 + (1 - adam.beta2) * gradient**2
        mean = state.moment1 / (1 - adam.beta1**state.num_steps)
        scale = np.sqrt(state.moment2 / (1 - adam.beta2**state.num_steps)) + adam.eps
        state.theta = state.theta - adam.learning_rate * mean / scale
        metrics = {"grad_norm": float(np.linalg.norm(gradient)), "synthetic": 1.0}
        return self._service.request("optim_step", tinker.OptimStepResponse(metrics=metrics))

    def save_state(self, name: str, ttl_seconds: int | None = None) -> "FakeFuture[tinker.types.SaveWeightsResponse]":
        del ttl_seconds
        path = self._store("weights", name)
        return self._service.request("save_state", tinker.types.SaveWeightsResponse(path=path))

    def save_weights_for_sampler(
        self, name: str, ttl_seconds: int | None = None
    ) -> "FakeFuture[tinker.types.SaveWeightsForSamplerResponse]":
        del ttl_seconds
        path = self._store("sampler_weights", name)
        return self._service.request("save_sampler", tinker.types.SaveWeightsForSamplerResponse(path=path))

    def save_weights_and_get_sampling_client(self) -> "FakeFuture[FakeSamplingClient]":
        return self._service.request("snapshot", FakeSamplingClient(self._service, self._state.theta.copy()))

    def _store(self, kind: str, name: str) -> str:
        path = f"tinker://synthetic:train:{self._num_saved}/{kind}/{name}"
        self._service.states[path] = copy.deepcopy(self._state)
        return path


class FakeSamplingClient:
    """Fits `cookhouse.training.SamplingClient`."""

    def __init__(self, service: FakeService, theta: NDArray[np.float64]) -> None:
        self._service = service
        self._theta = theta

    def sample(
        self,
        prompt: tinker.ModelInput,
        num_samples: int,
        sampling_params: tinker.SamplingParams,
        include_prompt_logprobs: bool = False,
        topk_prompt_logprobs: int = 0,
    ) -> "FakeFuture[tinker.SampleResponse]":
        sequences = []
        for index in range(num_samples):
            chance = self._service.chance(sampling_params.seed, index)
            answer = self._service.answer(self._theta, _tokens(prompt), chance)
            tokens_T, stop_reason = _cut(answer, sampling_params)
            sequences.append(
                tinker.types.SampledSequence(
                    stop_reason=stop_reason,
                    sequence_id=f"synthetic-{index}",
                    tokens_np=tokens_T,
                    logprobs_np=_logprobs(self._theta, tokens_T).astype(np.float32),
                )
            )
        ranked = self._ranked(prompt.length, topk_prompt_logprobs) if include_prompt_logprobs else None
        response = tinker.SampleResponse(sequences=sequences, _topk_prompt_logprobs_list=ranked)
        return self._service.request("sample", response)

    def _ranked(self, length: int, count: int) -> list[list[tuple[int, float]] | None] | None:
        """The most likely tokens, the same at every position but the first."""
        if not count:
            return None
        best = np.argsort(-self._theta, kind="stable")[:count]
        ranked = list(zip(best.tolist(), _logprobs(self._theta, best).tolist(), strict=True))
        return [None, *[ranked] * (length - 1)]

    def compute_logprobs(self, prompt: tinker.ModelInput) -> "FakeFuture[list[float | None]]":
        tokens_T = np.array(_tokens(prompt), dtype=np.int32)
        logprobs = _logprobs(self._theta, tokens_T).astype(np.float32).tolist()
        return self._service.request("compute_logprobs", [None, *logprobs[1:]])


def _tokens(prompt: tinker.ModelInput) -> list[int]:
    tokens_T, _ = tokens_and_images(prompt)
    return [int(token) for token in tokens_T]


def _cut(answer: Sequence[int], params: tinker.SamplingParams) -> tuple[NDArray[np.int32], Literal["stop", "length"]]:
    """An answer up to the first token to stop at, or to the number asked for. Texts to stop at are not looked for."""
    stops = [stop for stop in params.stop or () if isinstance(stop, int)] if not isinstance(params.stop, str) else []
    end = next((index + 1 for index, token in enumerate(answer) if token in stops), len(answer))
    most = end if params.max_tokens is None else params.max_tokens
    return np.array(answer[: min(end, most)], dtype=np.int32), "stop" if end <= most else "length"


def _with_weights(datum: tinker.Datum, weights_T: NDArray[Any]) -> tinker.Datum:
    inputs = {
        "target_tokens": datum.loss_fn_inputs["target_tokens"],
        "weights": tinker.TensorData.from_numpy(weights_T.astype(np.float32)),
    }
    return tinker.Datum(model_input=datum.model_input, loss_fn_inputs=inputs)


def _logprobs(theta: NDArray[np.float64], tokens_T: NDArray[Any]) -> NDArray[np.float64]:
    return np.asarray(-np.logaddexp(0.0, 2.0 - theta[tokens_T % _NUM_BUCKETS]))


def _output(
    theta: NDArray[np.float64],
    data_D: Sequence[tinker.Datum],
    loss_fn: str,
    loss_fn_config: Mapping[str, float | str] | None,
) -> tuple[tinker.ForwardBackwardOutput, NDArray[np.float64]]:
    """Per-token logprobs, and the gradient of the loss by theta. Raises as `token_losses`."""
    gradient = np.zeros(_NUM_BUCKETS)
    fields_D, loss = [], 0.0
    for datum in data_D:
        inputs = {name: tensor.to_numpy() for name, tensor in datum.loss_fn_inputs.items()}
        bucket_T = inputs["target_tokens"] % _NUM_BUCKETS
        logprob_T = _logprobs(theta, bucket_T)
        loss_T, slope_T = token_losses(loss_fn, logprob_T, inputs, loss_fn_config)
        loss += float(np.sum(loss_T))
        np.add.at(gradient, bucket_T, slope_T * (1.0 - np.exp(logprob_T)))
        fields_D.append({"logprobs": tinker.TensorData.from_numpy(logprob_T.astype(np.float32))})
    output = tinker.ForwardBackwardOutput(
        loss_fn_output_type="ArrayRecord",
        loss_fn_outputs=fields_D,
        metrics={"loss:sum": loss, "synthetic:max": 1.0},
    )
    return output, gradient
