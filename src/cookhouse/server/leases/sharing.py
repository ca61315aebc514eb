"""Options of a server that shares its sessions with others."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from cookhouse.errors import InputError


@dataclass(frozen=True, slots=True, kw_only=True)
class Sharing:
    folder: Path
    """Of checkpoints and journal, which all of the servers see."""
    url: str
    """Where the others reach this one."""


def sharing_of(
    *,
    folder: Path | None,
    url: str | None,
    database: str | None,
    api_keys: Sequence[str],
    journal: str | None,
    samplers_only: bool,
    end_sessions: Sequence[str] = (),
) -> Sharing | None:
    """Options of sharing, as they were given; None: the server shares nothing.

    Raises:
        InputError: they do not go together.
    """
    if folder is None and url is None:
        return None
    if folder is None or url is None:
        given, missing = (
            ("--server-url", "--shared-folder FOLDER") if folder is None else ("--shared-folder", "--server-url URL")
        )
        raise InputError(
            f"{given} is for several servers that share their sessions, and needs {missing} beside it: the folder that "
            "all of them see, and where the others reach this one"
        )
    if database is None:
        raise InputError(
            "--shared-folder and --server-url need a database that servers can share: give all of them the same "
            "--database postgresql://USER:PASSWORD@HOST/NAME (extra `postgres`)"
        )
    if not api_keys:
        raise InputError(
            "servers that share sessions need the same keys, and this one was given none; give all of them the same "
            "COOKHOUSE_API_KEYS"
        )
    if journal == "off":
        raise InputError("--journal off keeps nothing that another server could take over; leave it out")
    if samplers_only:
        raise InputError("--samplers-only cannot take over models that train; leave it out, or --shared-folder")
    if "start" in end_sessions:
        raise InputError("--end-sessions start would end the sessions of the other servers; leave it out")
    if "missing" in end_sessions:
        raise InputError("--end-sessions missing would end sessions that other servers can bring back; leave it out")
    if "eof" in end_sessions:
        raise InputError(
            "--end-sessions eof would end sessions that other servers' clients began here; leave it out, or "
            "--shared-folder"
        )
    return Sharing(folder=folder, url=_checked(url))


def _checked(url: str) -> str:
    parts = urlsplit(url)
    try:
        is_address = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_address = False
    if not is_address or parts.path.strip("/") or parts.query or parts.fragment or parts.username:
        raise InputError(f"--server-url {url!r} is no address of a server; write http://HOST:PORT")
    return url.rstrip("/")
