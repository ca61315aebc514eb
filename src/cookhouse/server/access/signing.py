"""Links that need no key, cannot be guessed, and end.

The secret lives as long as the process, unless servers share one: after a restart a client asks for new links, as it
does when they end.
"""

import hashlib
import hmac
import secrets
import time

from cookhouse.server.refusals import GoneError, NotFoundError

LINK_SECONDS = 3600


class Signer:
    """Signs what a link leads to, and until when."""

    def __init__(self, way_out: str, secret: bytes | None = None) -> None:
        """`way_out` is how to get a new link, for the errors; `secret` None: one of its own."""
        self._way_out = way_out
        self._secret = secret or secrets.token_bytes(32)

    def sign(self, expires_at: int, *names: str) -> str:
        message = "/".join((*names, str(expires_at))).encode()
        return hmac.new(self._secret, message, hashlib.sha256).hexdigest()

    def check(self, signature: str, expires_at: int, *names: str) -> None:
        """Let a link pass that this object signed; nothing of any other may be used.

        Raises:
            NotFoundError: it did not.
            GoneError: the link has ended.
        """
        if not hmac.compare_digest(self.sign(expires_at, *names).encode(), signature.encode()):
            raise NotFoundError(f"there is no such download; {self._way_out}")
        if expires_at <= time.time():
            raise GoneError(f"the link has expired; {self._way_out}")
