"""Calls of a server's operator, outside the protocol of training."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import httpx

from cookhouse.errors import InputError, ServiceError

_PATIENCE_SECONDS = 30.0
_NO_WORKERS = "the server reports no workers; it is not cookhouse serve, or an older version"


class UnreachableError(ServiceError):
    """Nobody answers at the address; later somebody may."""


class Operator:
    """Blocking calls."""

    def __init__(self, base_url: str | None, api_key: str | None) -> None:
        """Raises InputError: address or key is missing."""
        if not base_url:
            raise InputError("no server address; set --base-url or TINKER_BASE_URL")
        if not api_key:
            raise InputError(f"the server at {base_url} wants a key; set TINKER_API_KEY, or give one with --api-key")
        if not (api_key.isascii() and api_key.isprintable()):
            raise InputError("the key has characters that no key of a server has; copy it again")
        self._base_url = base_url.rstrip("/")
        self._headers = {"X-API-Key": api_key}

    def status(self) -> Mapping[str, Any]:
        """See docs/reference/server-status.md. Raises as `add`."""
        status = self._ask("GET", "status")
        if not isinstance(status.get("workers"), list) or "waiting" not in status:
            raise InputError(f"{self._base_url}: {_NO_WORKERS}")
        return status

    def add(self, kind: str | None = None) -> Mapping[str, Any]:
        """Start one more worker: a worker, a trainer or a sampler; None: what the server has.

        Raises:
            InputError: the server refuses it, or is none of cookhouse's.
            ServiceError: it fails, or does not answer.
        """
        return self._ask("POST", "workers", json={"kind": kind})

    def drain(self, name: str, seconds: float) -> Mapping[str, Any]:
        """Drain a worker. Raises as `add`."""
        return self._ask("POST", f"workers/{quote(name, safe='')}/drain", json={"seconds": seconds})

    def _ask(self, method: str, route: str, **content: Any) -> Mapping[str, Any]:
        url = f"{self._base_url}/api/v1/{route}"
        try:
            answer = httpx.request(method, url, headers=self._headers, timeout=_PATIENCE_SECONDS, **content)
        except (httpx.InvalidURL, httpx.UnsupportedProtocol) as error:
            raise InputError(f"{self._base_url} is no address of a server: {error}") from error
        except httpx.HTTPError as error:
            raise UnreachableError(f"{self._base_url} does not answer: {error}") from error
        told = _json(answer)
        if answer.status_code == httpx.codes.OK and told is not None:
            return told
        reason = (told or {}).get("detail") or f"it answers {answer.status_code}"
        if answer.is_server_error:
            raise UnreachableError(f"{self._base_url}: {reason}")
        if answer.status_code in (httpx.codes.OK, httpx.codes.NOT_FOUND):
            raise InputError(f"{self._base_url}: {_NO_WORKERS}: {reason}")
        raise InputError(str(reason))


def _json(answer: httpx.Response) -> Mapping[str, Any] | None:
    try:
        told = answer.json()
    except ValueError:
        return None
    return told if isinstance(told, dict) else None
