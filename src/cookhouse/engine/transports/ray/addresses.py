"""Address of a cluster of Ray's: `HOST:PORT` of its head, or a word. Knows no Ray."""

import socket
from urllib.parse import urlsplit

from cookhouse.errors import InputError

LOCAL = "local"
"""In place of an address: a cluster of this machine alone, which ends with the server."""
RUNNING = "auto"
"""In place of an address: the cluster that this machine is a node of."""
_CONNECT_SECONDS = 5.0


def answers(host: str, port: int, seconds: float = _CONNECT_SECONDS) -> bool:
    """True if somebody listens there."""
    try:
        with socket.create_connection((host, port), seconds):
            return True
    except OSError:
        return False


def check_address(address: str) -> None:
    """
    Raises:
        InputError: it is none, or nobody answers there.
    """
    if address in (LOCAL, RUNNING):
        return
    way_out = "give HOST:PORT of the head, as `ray start --head` says it, or `auto` on a machine that is a node"
    if "://" in address:
        raise InputError(f"{address!r} is no address of a head of Ray's; {way_out}")
    try:
        parts = urlsplit(f"//{address}")
        host, port = parts.hostname, parts.port
    except ValueError:
        host = port = None
    if not host or not port:
        raise InputError(f"{address!r} is no address of a head of Ray's; {way_out}")
    if not answers(host, port):
        raise InputError(f"nobody answers at {address}; see that Ray's head runs there, and that a firewall lets us in")


def why_not_joined(address: str, said: str) -> str:
    """In one line, from what Ray said."""
    said = " ".join(said.split())
    if address == LOCAL:
        return (
            f"Ray cannot start a cluster of this machine: {said}; see that the folder of temporary files can be "
            "written to and has room, and that ports of 127.0.0.1 can be listened at"
        )
    if "ersion mismatch" in said:
        return (
            f"Ray's cluster at {address} has other versions of Ray or Python than this machine: {said}; install the "
            "same everywhere"
        )
    if address == RUNNING:
        return (
            "this machine is no node of a cluster of Ray's; start Ray here with `ray start`, or give HOST:PORT of a "
            f"head ({said})"
        )
    return (
        f"Ray's cluster at {address} cannot be joined: {said}; where it asks for a token, set RAY_AUTH_MODE=token "
        f"here, too, and see that `ray start --address={address} --num-cpus=0 --block` works on this machine"
    )


def why_too_late(address: str, seconds: float) -> str:
    """In one line, where Ray said nothing in that time."""
    if address == LOCAL:
        return why_not_joined(address, f"it took longer than {seconds:g} s")
    return f"Ray's cluster at {address} cannot be joined: its head does not answer as one of Ray's"
