"""What is refused of the options of `cookhouse serve`, before anything is loaded."""

import ipaddress
import socket
from pathlib import Path

from cookhouse.errors import InputError


def parse_keys(text: str | None) -> tuple[str, ...]:
    keys = tuple(key.strip() for key in (text or "").split(",") if key.strip())
    for key in keys:
        if not key.startswith("tml-"):
            raise InputError(f"a key starts with {key[:4]!r}; the SDK sends only keys that start with 'tml-'")
    return keys


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def check_port_is_free(host: str, port: int) -> None:
    """Raises InputError where the server could not listen; it would find out only after loading the model."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as error:
        raise InputError(
            f"cannot listen on {host} port {port} ({error.strerror}); choose another with --port"
        ) from error


def check_command(shared_folder: Path | None, server_url: str | None) -> None:
    """Raises InputError where a server that ends with a command would end sessions that others share."""
    if shared_folder is not None or server_url is not None:
        option = "--server-url" if shared_folder is None else "--shared-folder"
        raise InputError(
            f"a command beside the server is its only client, which goes with it, and {option} is for several servers "
            "and their clients; start the command by itself, with TINKER_BASE_URL and TINKER_API_KEY, or leave "
            f"{option} out"
        )
