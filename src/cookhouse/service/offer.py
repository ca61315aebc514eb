"""Models, losses and prices of a service, asked before a run reads its data."""

import json
import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from cookhouse.adapters import ServiceAddress
from cookhouse.assets import TINY_MODEL
from cookhouse.models.catalog.files import has_config, model_folder
from cookhouse.models.catalog.prices import ADDRESS, Prices, published_prices, table_prices
from cookhouse.models.names import plain_name

logger = logging.getLogger(__name__)

_PATIENCE_SECONDS = 5.0
_KEPT_SECONDS = 60.0
_MAX_MODELS = 1000
_MAX_NAME_CHARACTERS = 200
_MAX_BYTES = 1 << 20

T = TypeVar("T")

_known: dict[tuple[str, ...], tuple[float, Any]] = {}
"""What was answered, and when, by address, key and what was asked for."""


def models_offered(address: ServiceAddress) -> tuple[str, ...] | None:
    """The models that can be trained at a service, by name; None: it does not say. Asked once a minute at most. Blocks.

    A service that is reached with a credential of a command is not asked.
    """
    found = _place(address)
    return None if found is None else _kept(found, lambda: _ask(*found))


def pair_losses_offered(address: ServiceAddress) -> tuple[str, ...] | None:
    """The losses over pairs that a service computes, by name; None: it does not answer. Asked as `models_offered`."""
    if address.base_url is None:
        return ()  # the hosted one has none
    found = _place(address)
    return None if found is None else _kept((*found, "pair_losses"), lambda: _ask_pair_losses(*found))


def base_model_at(address: ServiceAddress, path: str) -> str | None:
    """Base model of the weights at a `tinker://` path of a service; None: it does not report one. Blocks."""
    found = _place(address)
    return None if found is None else _kept((*found, path), lambda: _ask_base_model(*found, path))


def _place(address: ServiceAddress) -> tuple[str, str] | None:
    """URL and key; None: the key is not known here."""
    key = address.api_key or os.environ.get("TINKER_API_KEY")
    if not key:
        return None
    from tinker.lib.base_url import resolve_base_url

    return resolve_base_url(address.base_url), key


def prices_of(model: str) -> Prices | None:
    """Prices of the hosted service for a model: as published, where that can be read, else by the table. Blocks."""
    published = _kept((ADDRESS, ""), _published)
    return published_prices(model, published) or table_prices(model)


def _kept(name: tuple[str, ...], ask: Callable[[], T]) -> T:
    if name not in _known or time.monotonic() - _known[name][0] > _KEPT_SECONDS:
        _known[name] = (time.monotonic(), ask())
    found: T = _known[name][1]
    return found


def _capabilities(url: str, key: str) -> Mapping[str, Any] | None:
    from cookhouse.training.clients.client import server_json

    return server_json(url, key, "GET", "get_server_capabilities")


def _ask_pair_losses(url: str, key: str) -> tuple[str, ...] | None:
    answer = _capabilities(url, key)
    losses = None if answer is None else answer.get("pair_losses", [])
    return tuple(name for name in losses if isinstance(name, str)) if isinstance(losses, list) else None


def _ask_base_model(url: str, key: str, path: str) -> str | None:
    from cookhouse.training.clients.client import server_json

    name = (server_json(url, key, "POST", "weights_info", json={"tinker_path": path}) or {}).get("base_model")
    return name if isinstance(name, str) and len(name) <= _MAX_NAME_CHARACTERS and name.isprintable() else None


def _ask(url: str, key: str) -> tuple[str, ...] | None:
    answer = _capabilities(url, key)
    models = None if answer is None else answer.get("supported_models")
    if not isinstance(models, list):
        return None
    rows = [row for row in models[:_MAX_MODELS] if isinstance(row, dict) and row.get("trainable") is not False]
    names = [name for row in rows if isinstance(name := row.get("model_name"), str)]
    return tuple(name for name in names if len(name) <= _MAX_NAME_CHARACTERS and name.isprintable())


def _published() -> Any:
    import httpx

    try:
        with httpx.stream("GET", ADDRESS, timeout=_PATIENCE_SECONDS) as answer:
            answer.raise_for_status()
            body = b""
            for piece in answer.iter_bytes():
                body += piece
                if len(body) > _MAX_BYTES:
                    raise ValueError(f"more than {_MAX_BYTES:,} bytes")
        return json.loads(body)
    except (httpx.HTTPError, RecursionError, ValueError) as error:
        logger.info("the prices at %s cannot be read: %s", ADDRESS, error)
        return None


def check_models(names: Sequence[str]) -> None:
    """Refuse models that the engine cannot run, by their configs; those whose config is not on this machine are left.

    Raises:
        InputError: the engine cannot run one of them.
        ServiceError: it cannot be said.
    """
    found = [model_folder(name) for name in names if plain_name(name) != TINY_MODEL]
    folders = [str(folder) for folder in found if folder is not None and has_config(folder)]
    if folders:
        from cookhouse.engine.model_check import check_apart

        check_apart(folders)
