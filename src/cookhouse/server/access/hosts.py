"""Requests for this machine by another name: a page of a stranger's whose name leads here (DNS rebinding)."""

from starlette.requests import Request

from cookhouse.server.refusals import WrongHostError

_NAMES = ("127.0.0.1", "localhost", "[::1]")


def check_host(request: Request, *, is_loopback: bool) -> None:
    """Let a request pass that names this machine as its own programs do, where the server listens for these alone.

    Raises:
        WrongHostError: it names another.
    """
    host = request.headers.get("host", "")
    name = host if host.endswith("]") else host.rpartition(":")[0] or host
    if is_loopback and name.lower() not in _NAMES:
        raise WrongHostError(
            f"this server listens on loopback, and is asked for {', '.join(_NAMES[:-1])} or {_NAMES[-1]}, not for "
            f"{host[:200]!r}; a proxy before it has to send one of these as Host"
        )
