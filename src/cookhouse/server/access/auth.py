"""API keys, and the tenants they stand for."""

import hashlib
import hmac
from collections.abc import Sequence

from cookhouse.errors import InputError
from cookhouse.server.refusals import UnauthorizedError

KEY_PREFIX = "tml-"
_OWNER_CHARACTERS = 32
_LABEL_CHARACTERS = 8


class KeyRing:
    """The keys a server accepts. Each is a tenant of its own, known everywhere by the digest of its key."""

    def __init__(self, api_keys: Sequence[str], salt: bytes = b"") -> None:
        """`salt`: what tenants are called by is mixed with it, so that nobody tries keys by that."""
        check_keys(api_keys)
        self._salt = salt
        self._digests = [_digest(key) for key in api_keys]

    @property
    def owners(self) -> Sequence[str]:
        """The tenants of its keys."""
        return [digest[:_OWNER_CHARACTERS] for digest in self._digests]

    @property
    def operator(self) -> str:
        """The tenant of the first key, who sees how the server does for all of them."""
        return self.owners[0]

    def has(self, key: str) -> bool:
        """True for a key of this ring."""
        digest = _digest(key)
        return sum(hmac.compare_digest(known, digest) for known in self._digests) > 0

    def label_of(self, owner: str) -> str:
        """Label of a tenant where others read it."""
        return hmac.new(self._salt, owner.encode(), "sha256").hexdigest()[:_LABEL_CHARACTERS]

    def owner_of(self, key: str | None) -> str:
        """The tenant of a key.

        Raises:
            UnauthorizedError: no key, or an unknown one.
        """
        if not key:
            raise UnauthorizedError("the request has no X-API-Key header; set TINKER_API_KEY to a key of this server")
        digest = _digest(key)
        # All of them, so that the time taken says nothing about which one matched.
        matches = [known for known in self._digests if hmac.compare_digest(known, digest)]
        if not matches:
            raise UnauthorizedError(
                "the API key is not one of this server's; check TINKER_API_KEY and TINKER_BASE_URL: the server printed "
                "its key as it started, or was given its keys by --api-key or COOKHOUSE_API_KEYS"
            )
        return matches[0][:_OWNER_CHARACTERS]


def check_keys(api_keys: Sequence[str]) -> None:
    """Raises InputError: there is no key, or one that cannot be used."""
    if not api_keys:
        raise InputError("a server needs at least one API key; give one that starts with 'tml-'")
    for key in api_keys:
        if not key.startswith(KEY_PREFIX) or key == KEY_PREFIX:
            raise InputError(
                f"an API key that starts with {key[:4]!r} cannot be used; a key starts with {KEY_PREFIX!r}, since "
                "the SDK sends no other"
            )


def _digest(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()
