"""A session with a training service: opened by making a training client, closed with how it ended."""

import asyncio
import errno
import logging
import os
import re
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping
from concurrent.futures import Future as ConcurrentFuture
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Literal, TypeVar

import tinker

from cookhouse.errors import InputError, ServiceError
from cookhouse.extras import has_engine, require_engine
from cookhouse.registry import ModelRegistry
from cookhouse.settings import PairLossSettings, TrainingSettings
from cookhouse.training.clients.client import Connect, ServiceClient, TrainingClient
from cookhouse.weights.names import find_weights, is_same_renderer, other_format

logger = logging.getLogger(__name__)

_CLOSE_PATIENCE_SECONDS = 5.0
BROKEN_PATIENCE_SECONDS = 1.0
"""For the end of a session of a run that broke: maybe nobody is there to hear of it."""

_ENDED = re.compile(r"\bsession\b.{0,60}\bhas ended|is gone with its session|is no longer kept|its result was dropped")
"""What a service says of a session that it has ended, and of what it then keeps no longer."""

_T = TypeVar("_T")
SessionStatus = Literal["success", "errored", "interrupted"]


@dataclass(frozen=True, kw_only=True)
class SessionSpec:
    """The weights: a new adapter, one with the weights at `load_checkpoint_path`, or the one a run goes on with."""

    settings: TrainingSettings
    resume_path: str | None = None
    """Checkpoint to continue from, optimizer state included; `load_checkpoint_path` then plays no part."""
    registry: ModelRegistry | None = None
    """Where `load_checkpoint_path` may name a model."""


@dataclass(frozen=True, kw_only=True)
class TrainingSession:
    """An open session and its one training client."""

    service: ServiceClient
    client: TrainingClient
    context_tokens: int | None
    """Tokens that the service's model takes at most, prompt and answer together; None if it does not say."""

    async def usage(self) -> Mapping[str, float] | None:
        """Usage that the service has counted for this session; None where it does not report it."""
        ask = getattr(self.service, "usage", None)
        return None if ask is None else await ask()

    async def close(self, status: SessionStatus, patience_seconds: float = _CLOSE_PATIENCE_SECONDS) -> None:
        """Tell the service how it ended; one that does not answer in time is left alone."""
        await close_service(self.service, status, patience_seconds)


async def open_session(connect: Connect, spec: SessionSpec) -> TrainingSession:
    """Connect, and make the training client that `spec` asks for.

    Raises:
        InputError: the service refused the model, the checkpoint or the key; or it does not compute the loss over
            pairs, and torch is not installed.
        ServiceError: it could not be reached, or failed.
    """
    with service_errors("opening a session"):
        service = await connect()
        try:
            await _check_format(service, spec)
            await _check_pair_loss(service, spec)
            # The SDK opens its session inside the first of these calls and blocks meanwhile: not on the event loop.
            pending = await _in_thread(partial(_submit_client, service, spec))
            context_tokens = await service.context_tokens(spec.settings.model_name)
            return TrainingSession(service=service, client=await pending, context_tokens=context_tokens)
        except BaseException:
            await close_service(service, "errored", BROKEN_PATIENCE_SECONDS)
            raise


async def _check_format(service: ServiceClient, spec: SessionSpec) -> None:
    """Refuse weights to start from of another chat format, where only the service knows it."""
    settings, ask = spec.settings, getattr(service, "renderer_of", None)
    name = settings.load_checkpoint_path
    if spec.resume_path is not None or name is None or settings.force_renderer or ask is None:
        return
    trained = await ask(find_weights(name, spec.registry).path("training"))
    if trained is not None and not is_same_renderer(trained, settings.renderer_name):
        raise other_format("load_checkpoint_path", name, trained, settings.renderer_name)


async def _check_pair_loss(service: ServiceClient, spec: SessionSpec) -> None:
    """Refuse a loss over pairs that the service leaves to torch, where that is missing."""
    settings = spec.settings
    if not isinstance(settings, PairLossSettings) or has_engine(["torch"]):
        return
    if settings.pair_loss not in (await service.pair_losses()).names:
        require_engine(f"pair_loss={settings.pair_loss}, which the service does not compute,", ["torch"])


def _submit_client(service: ServiceClient, spec: SessionSpec) -> Awaitable[TrainingClient]:
    settings = spec.settings
    if spec.resume_path is not None:
        return service.create_training_client_from_state_with_optimizer(
            spec.resume_path, user_metadata=settings.metadata
        )
    if settings.load_checkpoint_path is not None:
        path = find_weights(settings.load_checkpoint_path, spec.registry).path("training")
        return service.create_training_client_from_state(path, user_metadata=settings.metadata)
    return service.create_lora_training_client(settings.model_name, **settings.adapter_options)


async def _in_thread(call: Callable[[], _T]) -> _T:
    """The result of a blocking call, in a thread that nobody waits for: Python ends none of `asyncio.to_thread`, and
    the SDK may block for as long as it tries to reach a service that is gone.
    """
    future: ConcurrentFuture[_T] = ConcurrentFuture()
    future.set_running_or_notify_cancel()

    def run() -> None:
        try:
            future.set_result(call())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, name="training service", daemon=True).start()
    return await asyncio.wrap_future(future)


async def close_service(
    service: ServiceClient, status: SessionStatus, patience_seconds: float = _CLOSE_PATIENCE_SECONDS
) -> None:
    """End a service's session; one that does not answer in time is left alone, with a warning."""
    try:
        async with asyncio.timeout(patience_seconds):
            await (await _in_thread(partial(service.close, status)))
    except (TimeoutError, tinker.TinkerError) as error:
        logger.warning("the training service did not close the session: %s", str(error) or type(error).__name__)


@contextmanager
def service_errors(doing: str) -> Iterator[None]:
    """Attribute what the SDK raises: to the caller when the service refused the request, else to the service. That a
    session has ended is the service's doing.
    """
    try:
        yield
    except tinker.RequestFailedError as error:
        reason = _reason(error)
        # A full disk is the caller's to mend, wherever the service keeps its checkpoints; only the text says so.
        is_callers = error.category == tinker.types.RequestErrorCategory.User or os.strerror(errno.ENOSPC) in reason
        is_callers = is_callers and _ENDED.search(reason) is None
        raise (InputError if is_callers else ServiceError)(f"{reason} (while {doing})") from error
    except (tinker.AuthenticationError, tinker.PermissionDeniedError) as error:
        raise InputError(
            f"the training service refused the API key: {_detail(error)} (while {doing}); "
            "set TINKER_API_KEY to one that it knows"
        ) from error
    except (tinker.BadRequestError, tinker.NotFoundError, tinker.UnprocessableEntityError) as error:
        is_callers = _ENDED.search(_detail(error)) is None
        raise (InputError if is_callers else ServiceError)(f"{_detail(error)} (while {doing})") from error
    except tinker.APIConnectionError as error:
        raise ServiceError(
            f"the training service at {error.request.url.host} cannot be reached: {error.message} (while {doing}); "
            "see that it runs, and that TINKER_BASE_URL names it"
        ) from error
    except tinker.TinkerError as error:
        raise ServiceError(f"the training service failed: {error} (while {doing})") from error
    except ValueError as error:  # with which the SDK wraps what is said of a future
        if not isinstance(error.__cause__, tinker.APIStatusError):
            raise
        raise ServiceError(f"{_detail(error.__cause__)} (while {doing})") from error


def _reason(error: tinker.RequestFailedError) -> str:
    """Message of the service, without the SDK's own words around it."""
    return re.sub(r"^Request failed: (.*) for self\.request_id=.*$", r"\1", error.message, flags=re.DOTALL)


def _detail(error: tinker.APIStatusError) -> str:
    body = error.body
    if isinstance(body, dict):
        for key in ("detail", "message", "error"):
            if isinstance(body.get(key), str):
                return str(body[key])
    return error.message
