"""The part of the tinker SDK that training uses, as protocols: the SDK's own clients and the fake ones both fit.

Every request method returns at once with an awaitable; requests of one training client run in the order submitted.
"""

import asyncio
import logging
import os
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

import httpx
import tinker
from tinker.lib.client_connection_pool_type import ClientConnectionPoolType

from cookhouse.sampling_client import SamplingClient

if TYPE_CHECKING:
    import torch

logger = logging.getLogger(__name__)

_REPORT_PATIENCE_SECONDS = 5.0
_SHA256 = re.compile(r"[0-9a-f]{64}")

LossFunction: TypeAlias = "Callable[[list[tinker.Datum], list[torch.Tensor]], tuple[torch.Tensor, dict[str, float]]]"
"""Of datums and, for each, the logprobs of its targets under the weights being trained, which carry a gradient: the
loss, one number that depends on every one of them, and metrics. The service is sent `target_tokens` and `weights` of a
datum; the function sees all of it."""


class TrainingClient(Protocol):
    """`tinker.TrainingClient`: one adapter being trained."""

    def forward(
        self,
        data: list[tinker.Datum],
        loss_fn: tinker.types.LossFnType,
        loss_fn_config: Mapping[str, float | str] | None = None,
    ) -> Awaitable[tinker.ForwardBackwardOutput]: ...

    def forward_backward(
        self,
        data: list[tinker.Datum],
        loss_fn: tinker.types.LossFnType,
        loss_fn_config: Mapping[str, float | str] | None = None,
    ) -> Awaitable[tinker.ForwardBackwardOutput]: ...

    def forward_backward_custom(
        self, data: list[tinker.Datum], loss_fn: LossFunction
    ) -> Awaitable[tinker.ForwardBackwardOutput]: ...

    def optim_step(self, optim_params: tinker.AdamParams) -> Awaitable[tinker.OptimStepResponse]: ...

    def save_state(self, name: str, ttl_seconds: int | None = None) -> Awaitable[tinker.types.SaveWeightsResponse]: ...

    def save_weights_for_sampler(
        self, name: str, ttl_seconds: int | None = None
    ) -> Awaitable[tinker.types.SaveWeightsForSamplerResponse]: ...

    def save_weights_and_get_sampling_client(self) -> Awaitable[SamplingClient]: ...


@dataclass(frozen=True, kw_only=True)
class PairLossOffer:
    """Losses over pairs that a service computes in one pass, by name, and how much it takes in one request. A call with
    more is split by the SDK, wherever that may be.
    """

    names: frozenset[str] = frozenset()
    has_token_logprobs: bool = False
    """Whether it gives the logprobs of an answer's tokens, besides their sum, where it is asked to."""
    max_datums: int = 0
    max_bytes: int = 0


class ServiceClient(Protocol):
    """`tinker.ServiceClient`, which makes the others and ends the session, and the `context_tokens` and `pair_losses`
    of `TinkerServiceClient`.
    """

    def create_lora_training_client(
        self,
        base_model: str,
        rank: int = 32,
        seed: int | None = None,
        train_mlp: bool = True,
        train_attn: bool = True,
        train_unembed: bool = True,
        user_metadata: dict[str, str] | None = None,
    ) -> Awaitable[TrainingClient]: ...

    def create_training_client_from_state(
        self, path: str, *, user_metadata: dict[str, str] | None = None
    ) -> Awaitable[TrainingClient]: ...

    def create_training_client_from_state_with_optimizer(
        self, path: str, *, user_metadata: dict[str, str] | None = None
    ) -> Awaitable[TrainingClient]: ...

    def create_sampling_client(
        self, model_path: str | None = None, base_model: str | None = None
    ) -> Awaitable[SamplingClient]: ...

    def context_tokens(self, model_name: str) -> Awaitable[int | None]:
        """Tokens, prompt and answer together, that a base model takes at most there; None if it does not say."""

    def delete_checkpoint(self, path: str) -> Awaitable[None]:
        """Delete what was saved at a `tinker://` path."""

    def pair_losses(self) -> Awaitable["PairLossOffer"]:
        """The losses over pairs that the service computes itself; a service of the SDK's protocol alone has none."""

    def close(
        self, status: Literal["success", "errored", "interrupted"], detail: str | None = None
    ) -> Awaitable[None]: ...


Connect = Callable[[], Awaitable[ServiceClient]]
"""Opens a connection to a training service, which may mean to start one first."""


def connect_to(base_url: str | None = None, api_key: str | None = None) -> Connect:
    """Connects to the service at an address; None leaves address or key to the SDK and its environment variables."""

    async def connect() -> ServiceClient:
        return TinkerServiceClient(base_url=base_url, api_key=api_key)

    return connect


def served_sha256(address: str, key: str | None, path: str) -> str | None:
    """The checksum of the weights at a `tinker://` path, by `folder_sha256`, as their server reports it; None: it
    does not. Blocking.
    """
    answer = server_json(address, key, "POST", "weights_info", json={"tinker_path": path}) or {}
    digest = answer.get("sha256")
    return digest if isinstance(digest, str) and _SHA256.fullmatch(digest) else None


def server_json(address: str, key: str | None, method: str, route: str, **content: Any) -> dict[str, Any] | None:
    """A JSON object of a server that the SDK does not read; None: it has none. Blocking."""
    url = f"{address.rstrip('/')}/api/v1/{route}"
    try:
        answer = httpx.request(
            method, url, headers={"X-API-Key": key or ""}, timeout=_REPORT_PATIENCE_SECONDS, **content
        )
        found = answer.json() if answer.status_code == httpx.codes.OK else None
    except (httpx.HTTPError, ValueError) as error:
        logger.info("the service did not answer %s: %s", route, error)
        return None
    return found if isinstance(found, dict) else None


class _Capabilities(tinker.types.GetServerCapabilitiesResponse):
    """Answer of a service, with fields that the SDK does not know."""

    pair_losses: tuple[str, ...] = ()
    pair_token_logprobs: bool = False
    fwdbwd_max_chunk_len: int = 0
    fwdbwd_max_chunk_bytes_count: int = 0


class TinkerServiceClient(tinker.ServiceClient):
    """The SDK's client, and what the SDK leaves for another of its clients to ask."""

    def __init__(self, *, base_url: str | None = None, api_key: str | None = None) -> None:
        super().__init__(base_url=base_url, api_key=api_key)
        self._address = base_url or os.environ.get("TINKER_BASE_URL")
        self._key = api_key or os.environ.get("TINKER_API_KEY")
        self._make_rest_client = cache(partial(tinker.RestClient, base_url=base_url, api_key=api_key))

    @property
    def is_hosted(self) -> bool:
        """True if it is the hosted service, which does not report what it has counted."""
        return not self._address

    async def context_tokens(self, model_name: str) -> int | None:
        offered = (await self._capabilities()).supported_models
        return next((model.max_context_length for model in offered if model.model_name == model_name), None)

    async def usage(self) -> Mapping[str, float] | None:
        """Usage that the server has counted for this session: tokens by kind, and `engine_seconds`. None: it does not
        report it, as the hosted service, which is not asked.
        """
        if not self._address:
            return None
        route = f"sessions/{self.holder.get_session_id()}/usage"
        counted = await asyncio.to_thread(server_json, self._address, self._key, "GET", route)
        if counted is None:
            return None
        return {str(name): value for name, value in counted.items() if isinstance(value, int | float)}

    async def sha256_of(self, path: str) -> str | None:
        """The checksum of the weights at a `tinker://` path, as the server reports it. None: it does not, as the hosted
        service, which is not asked.
        """
        if not self._address:
            return None
        return await asyncio.to_thread(served_sha256, self._address, self._key, path)

    async def renderer_of(self, path: str) -> str | None:
        """The chat format that the weights at a `tinker://` path were trained in, as the service recorded it; None:
        it did not, or does not report it.
        """
        rest = await asyncio.to_thread(self._make_rest_client)
        try:
            run = await rest.get_training_run_by_tinker_path(path)
        except tinker.TinkerError as error:
            logger.info("the service does not tell how %s was trained: %s", path, error)
            return None
        return (run.user_metadata or {}).get("renderer_name")

    async def delete_checkpoint(self, path: str) -> None:
        rest = await asyncio.to_thread(self._make_rest_client)
        await rest.delete_checkpoint_from_tinker_path(path)

    async def pair_losses(self) -> PairLossOffer:
        found = await self._capabilities()
        return PairLossOffer(
            names=frozenset(found.pair_losses),
            has_token_logprobs=found.pair_token_logprobs,
            max_datums=found.fwdbwd_max_chunk_len,
            max_bytes=found.fwdbwd_max_chunk_bytes_count,
        )

    async def _capabilities(self) -> _Capabilities:
        holder = (await asyncio.to_thread(self._make_rest_client)).holder

        async def ask() -> _Capabilities:
            with holder.aclient(ClientConnectionPoolType.TRAIN) as client:
                return await client.get("/api/v1/get_server_capabilities", cast_to=_Capabilities)

        found: _Capabilities = await holder.run_coroutine_threadsafe(holder.execute_with_retries(ask))
        return found
