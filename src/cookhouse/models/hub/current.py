"""The hub that names are looked up in: the one of the run, wherever below it a tokenizer or a config is asked for."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from cookhouse.models.hub.hugging_face import HuggingFaceHub
from cookhouse.models.hub.port import HubClient

_HUGGING_FACE = HuggingFaceHub()
_current: ContextVar[HubClient | None] = ContextVar("hub", default=None)


def current_hub() -> HubClient:
    """The hub in use; outside of a run, the Hugging Face hub."""
    return _current.get() or _HUGGING_FACE


@contextmanager
def hub_in_use(hub: HubClient) -> Iterator[None]:
    """Look names up in this hub, within the body and the tasks and threads (`asyncio.to_thread`) that it starts."""
    token = _current.set(hub)
    try:
        yield
    finally:
        _current.reset(token)
