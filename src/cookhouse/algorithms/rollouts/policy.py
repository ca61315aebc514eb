"""The weights that rollouts sample from: replaced each time the loop publishes, versioned by the steps behind them."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import tinker

from cookhouse.rl import StopCondition, TokensWithLogprobs
from cookhouse.sampling_client import SamplingClient
from cookhouse.settings import SamplingSettings
from cookhouse.telemetry import after_step
from cookhouse.training.clients.client import TrainingClient
from cookhouse.training.clients.session import service_errors


class PolicySampler:
    """One version of the weights; fits `cookhouse.rl.GroupSampler`."""

    def __init__(self, client: SamplingClient, version: int, *, max_tokens: int, temperature: float) -> None:
        self._client = client
        self._version = version
        self._max_tokens = max_tokens
        self._temperature = temperature

    @property
    def version(self) -> int:
        return self._version

    async def sample(
        self, prompt: tinker.ModelInput, stop: StopCondition, *, num_samples: int, max_tokens: int | None, seed: int
    ) -> Sequence[TokensWithLogprobs]:
        """`num_samples` answers, each with the logprobs of its tokens in nats; `max_tokens` lowers the run's own."""
        limit = self._max_tokens
        params = tinker.SamplingParams(
            max_tokens=limit if max_tokens is None else min(limit, max_tokens),
            temperature=self._temperature,
            stop=stop,
            seed=seed,
        )
        response = await self._client.sample(prompt, num_samples, params)
        return [
            TokensWithLogprobs(
                tokens=sequence.tokens, maybe_logprobs=sequence.logprobs, is_truncated=sequence.stop_reason == "length"
            )
            for sequence in response.sequences
        ]

    async def compute_logprobs(self, sequence: tinker.ModelInput) -> Sequence[float | None]:
        """Logprob of each token given those before it, at temperature 1; None for the first."""
        return await self._client.compute_logprobs(sequence)


class Policy:
    """Holds the newest version that the service has confirmed; older ones live as long as a rollout holds them."""

    def __init__(self, settings: SamplingSettings) -> None:
        self._settings = settings
        self._current: PolicySampler | None = None
        self._swaps: set[asyncio.Task[None]] = set()
        self._error: BaseException | None = None
        self._on_change: Callable[[], None] = lambda: None

    @property
    def current(self) -> PolicySampler | None:
        """The newest version; None before the first.

        Raises:
            InputError, ServiceError: a publication failed.
        """
        if self._error is not None:
            raise self._error
        return self._current

    async def newest(self) -> PolicySampler:
        """The weights published last, once the service has confirmed them. Raises as `current`."""
        if self._swaps:
            await asyncio.wait(self._swaps)
        current = self.current
        assert current is not None
        return current

    async def compute_logprobs(self, sequence: tinker.ModelInput) -> Sequence[float | None]:
        """As `PolicySampler.compute_logprobs`, of the weights published last."""
        return await (await self.newest()).compute_logprobs(sequence)

    def on_change(self, callback: Callable[[], None]) -> None:
        """Call back when there is a newer version, and when a publication failed."""
        self._on_change = callback

    def publish(self, client: TrainingClient, version: int) -> None:
        """Request a sampler with the weights as of now, without waiting for it."""
        pending = client.save_weights_and_get_sampling_client()
        swap = asyncio.create_task(self._swap(pending, version), name=f"publish weights {after_step(version)}")
        self._swaps.add(swap)
        swap.add_done_callback(self._finish_swap)

    async def aclose(self) -> None:
        """Stop waiting for publications."""
        for swap in self._swaps:
            swap.cancel()
        await asyncio.gather(*self._swaps, return_exceptions=True)

    async def _swap(self, pending: Awaitable[SamplingClient], version: int) -> None:
        with service_errors(f"publishing the weights {after_step(version)}"):
            client = await pending
        if self._current is None or version > self._current.version:
            settings = self._settings
            self._current = PolicySampler(
                client, version, max_tokens=settings.max_tokens, temperature=settings.temperature
            )

    def _finish_swap(self, swap: asyncio.Task[None]) -> None:
        self._swaps.discard(swap)
        if not swap.cancelled():
            self._error = self._error or swap.exception()
            self._on_change()
