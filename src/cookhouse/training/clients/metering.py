"""A service whose tokens are counted by who sends and receives them: the hosted one does not report them."""

import time
from collections import Counter
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from typing import Any, Generic, TypeVar, cast

import tinker

from cookhouse.sampling_client import SamplingClient
from cookhouse.training.clients.client import Connect, LossFunction, ServiceClient, TrainingClient

_REPORT_EVERY_SECONDS = 10.0

_T = TypeVar("_T")
_U = TypeVar("_U")


class TokenMeter:
    """Counts tokens by the names that cookhouse's own server has for them: what is sent when it is sent, samples when
    they come.
    """

    def __init__(
        self,
        *,
        before: float = 0,
        limit: int | None = None,
        on_limit: Callable[[str], None] = lambda _: None,
        report: Callable[[Mapping[str, float]], None] = lambda _: None,
    ) -> None:
        """`before`: tokens of earlier launches of the run, which count towards `limit`; `report` is called with the
        counts now and then, so that a run that is killed has left them.
        """
        self._counted: Counter[str] = Counter()
        self._before = before
        self._limit = limit
        self._on_limit = on_limit
        self._report = report
        self._reported_at = time.monotonic()

    @property
    def usage(self) -> dict[str, float]:
        return dict(self._counted)

    def count(self, kind: str, num_tokens: int) -> None:
        """Add tokens of a kind."""
        self._counted[kind] += num_tokens
        total = self._before + self._counted.total()
        if time.monotonic() - self._reported_at > _REPORT_EVERY_SECONDS:
            self._reported_at = time.monotonic()
            self._report(self.usage)
        if self._limit is not None and total >= self._limit:
            self._on_limit(f"max_tokens_total={self._limit} is reached: {round(total):,} tokens")


def metered(connect: Connect, meter: TokenMeter, is_wanted: Callable[[ServiceClient], bool]) -> Connect:
    """Connects as another, and counts what goes through, if that is wanted of the service."""

    async def connected() -> ServiceClient:
        service = await connect()
        return cast(ServiceClient, _Service(service, meter)) if is_wanted(service) else service

    return connected


class _Passing:
    """Passes on whatever it has no method of its own for."""

    def __init__(self, client: Any, meter: TokenMeter) -> None:
        self._client = client
        self._meter = meter

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)


class _Service(_Passing):
    def create_lora_training_client(self, *args: Any, **options: Any) -> Awaitable[TrainingClient]:
        return self._training(self._client.create_lora_training_client(*args, **options))

    def create_training_client_from_state(self, *args: Any, **options: Any) -> Awaitable[TrainingClient]:
        return self._training(self._client.create_training_client_from_state(*args, **options))

    def create_training_client_from_state_with_optimizer(self, *args: Any, **options: Any) -> Awaitable[TrainingClient]:
        return self._training(self._client.create_training_client_from_state_with_optimizer(*args, **options))

    def create_sampling_client(self, *args: Any, **options: Any) -> Awaitable[SamplingClient]:
        return _sampler(self._client.create_sampling_client(*args, **options), self._meter)

    async def usage(self) -> Mapping[str, float]:
        """Usage that the service has counted, if it reports it; else what was counted here."""
        ask = getattr(self._client, "usage", None)
        reported = None if ask is None else await ask()
        return reported or self._meter.usage

    def _training(self, made: Awaitable[Any]) -> Awaitable[TrainingClient]:
        return _Answer(made, lambda client: cast(TrainingClient, _Training(client, self._meter)))


class _Training(_Passing):
    def forward(self, data: list[tinker.Datum], *args: Any, **options: Any) -> Awaitable[Any]:
        self._meter.count("scored_tokens", _positions(data))
        answer: Awaitable[Any] = self._client.forward(data, *args, **options)
        return answer

    def forward_backward(self, data: list[tinker.Datum], *args: Any, **options: Any) -> Awaitable[Any]:
        self._meter.count("trained_tokens", _positions(data))
        answer: Awaitable[Any] = self._client.forward_backward(data, *args, **options)
        return answer

    def forward_backward_custom(self, data: list[tinker.Datum], loss_fn: LossFunction) -> Awaitable[Any]:
        # The SDK asks for the logprobs first, and then sends the gradient by them.
        self._meter.count("scored_tokens", _positions(data))
        self._meter.count("trained_tokens", _positions(data))
        answer: Awaitable[Any] = self._client.forward_backward_custom(data, loss_fn)
        return answer

    def save_weights_and_get_sampling_client(self, *args: Any, **options: Any) -> Awaitable[SamplingClient]:
        return _sampler(self._client.save_weights_and_get_sampling_client(*args, **options), self._meter)


class _Sampling(_Passing):
    def sample(self, prompt: tinker.ModelInput, *args: Any, **options: Any) -> Awaitable[tinker.SampleResponse]:
        answer = self._client.sample(prompt, *args, **options)
        self._meter.count("prompt_tokens", prompt.length)
        return _Answer(answer, self._sampled)

    def compute_logprobs(self, prompt: tinker.ModelInput) -> Awaitable[list[float | None]]:
        self._meter.count("prompt_tokens", prompt.length)
        answer: Awaitable[list[float | None]] = self._client.compute_logprobs(prompt)
        return answer

    def _sampled(self, response: tinker.SampleResponse) -> tinker.SampleResponse:
        self._meter.count("sampled_tokens", sum(len(sequence.tokens) for sequence in response.sequences))
        return response


class _Answer(Generic[_T, _U]):
    """An answer, and what is made of it when it comes, once."""

    def __init__(self, answer: Awaitable[_T], make: Callable[[_T], _U]) -> None:
        self._answer = answer
        self._make = make
        self._made: list[_U] = []

    async def _collect(self) -> _U:
        answer = await self._answer
        if not self._made:
            self._made.append(self._make(answer))
        return self._made[0]

    def __await__(self) -> Generator[Any, None, _U]:
        return self._collect().__await__()


def _sampler(made: Awaitable[Any], meter: TokenMeter) -> Awaitable[SamplingClient]:
    return _Answer(made, lambda client: cast(SamplingClient, _Sampling(client, meter)))


def _positions(data: Sequence[tinker.Datum]) -> int:
    return sum(datum.model_input.length for datum in data)
