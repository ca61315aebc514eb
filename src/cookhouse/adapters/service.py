"""The training service of a run, where it is not left to the settings and the environment."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from cookhouse.training import Connect

_HOSTED_DOMAIN = "thinkingmachines.dev"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceAddress:
    """Address of a training service. `api_key` None leaves finding one to the environment and the SDK."""

    base_url: str | None
    """None: the SDK's default, the hosted service."""
    api_key: str | None = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddedEngine:
    """The engine of cookhouse itself, started on this machine for the run."""


Service: TypeAlias = "Connect | ServiceAddress | EmbeddedEngine | None"
"""Opens a connection to the training service; awaited once the data has been read. None: the one that settings and
environment name, else the local engine.
"""


def is_hosted(service: Service, environ: Mapping[str, str], base_url: str | None = None) -> bool:
    """True if adapters, settings and environment name the hosted service between them. Nothing of them is checked."""
    if callable(service) or isinstance(service, EmbeddedEngine):
        return False
    url = (service and service.base_url) or base_url or environ.get("TINKER_BASE_URL")
    if url:
        host = urlsplit(url).hostname or ""
        return host == _HOSTED_DOMAIN or host.endswith(f".{_HOSTED_DOMAIN}")
    has_key = bool(environ.get("TINKER_API_KEY") or environ.get("TINKER_CREDENTIAL_CMD"))
    return service is not None or has_key
