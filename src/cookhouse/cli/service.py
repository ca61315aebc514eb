"""Which training service a command uses: one that the user configured, or the embedded one."""

import asyncio
import os
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from cookhouse.errors import InputError, ServiceError


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceAddress:
    """Where a training service answers. `api_key` None leaves finding one to the SDK."""

    base_url: str | None
    """None: the SDK's default, the hosted service."""
    api_key: str | None


def configured_service(environ: Mapping[str, str], base_url: str | None = None) -> ServiceAddress | None:
    """The service that `base_url` or the environment names, or None when neither does: then the embedded one is meant.

    Raises:
        InputError: the key or the address cannot be one, or an address came without a key.
    """
    url = base_url or environ.get("TINKER_BASE_URL") or None
    key = environ.get("TINKER_API_KEY") or None
    if key is not None and not key.startswith(("tml-", "eyJ")):
        raise InputError(
            f"TINKER_API_KEY starts with {key[:4]!r}; a key starts with 'tml-' (or 'eyJ' for a token): "
            "set the one that the service gave you, or unset it to train on this machine"
        )
    if url is None and key is None and not environ.get("TINKER_CREDENTIAL_CMD"):
        return None
    if url is not None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise InputError(f"{url!r} is not the address of a service; give one such as http://127.0.0.1:8000")
        if key is None and not environ.get("TINKER_CREDENTIAL_CMD"):
            raise InputError(f"no key for the service at {url}; set TINKER_API_KEY to one that it accepts")
    return ServiceAddress(base_url=url, api_key=key)


async def check_reachable(address: ServiceAddress, patience_seconds: float = 5.0) -> None:
    """Open and close a connection to a service at a given address: the SDK itself would retry for minutes.

    Skipped for the hosted service and where a proxy stands between.

    Raises:
        ServiceError: nothing answers there.
    """
    if address.base_url is None:
        return
    parts = urlsplit(address.base_url)
    assert parts.hostname is not None
    if parts.scheme in getproxies() and not proxy_bypass(parts.hostname):
        return
    port = parts.port or (443 if parts.scheme == "https" else 80)
    try:
        async with asyncio.timeout(patience_seconds):
            _, writer = await asyncio.open_connection(parts.hostname, port)
    except TimeoutError as error:
        raise ServiceError(f"no service answers at {address.base_url} in {patience_seconds:.0f} s") from error
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror or str(error)
        raise ServiceError(f"no service answers at {address.base_url}: {reason}; see that it runs") from error
    writer.close()
    await writer.wait_closed()
