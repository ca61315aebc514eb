"""`cookhouse serve --backup`: a copy of a server's state folder."""

from collections.abc import Collection, Sequence
from functools import partial
from pathlib import Path

import typer

from cookhouse.errors import InputError


def back_up_state(state_dir: Path, folder: Path, journal: str | None, checkpoints: str | None = None) -> None:
    """Copy a state folder, and say what the copy lacks. `journal` and `checkpoints` are as the server has them.

    Raises:
        InputError: there is no state folder, or the copy cannot be written.
        ServiceError: the database is damaged or locked, or files went faster than they could be copied.
    """
    from cookhouse.server.storage.backup.backup import back_up
    from cookhouse.server.storage.checkpoints.state_folder import CHECKPOINTS
    from cookhouse.telemetry import make_console, say

    tell = partial(say, make_console(stderr=True))
    remote = set() if checkpoints is None else {f"{CHECKPOINTS}/{one}" for one in _ids_at(checkpoints)}
    missing = back_up(state_dir, folder, journal=journal if journal and "://" in journal else None, say=tell)
    if elsewhere := [name for name in missing if name in remote]:
        tell(
            f"{len(elsewhere)} checkpoints lie at {checkpoints} and are not in the backup: what is deleted there is "
            "gone for it, too"
        )
    if lost := [name for name in missing if name not in remote]:
        tell(
            f"{state_dir} has lost what its database names, so that the backup lacks it, too: {', '.join(lost)}"
            + ("" if checkpoints else "; if its server has --checkpoints URL, give the same beside --backup")
        )
    again = f" --checkpoints {checkpoints}" if elsewhere else ""
    typer.echo(f"backed up {state_dir} to {folder}; to serve it: cookhouse serve --state-dir {folder}{again}")


def check_backup(
    state_dir: Path,
    *,
    command: Sequence[str] | None,
    database: str | None,
    shared_folder: Path | None,
    checkpoints: str | None,
) -> None:
    """Raises InputError: the options are not of a server whose state folder is all that there is."""
    if command:
        raise InputError("--backup serves nothing beside a command; give one of the two")
    if database is None and shared_folder is None:
        return
    servers = "the server" if shared_folder is None else "all of the servers, each of which writes to both"
    bucket = "" if checkpoints is None else f"; the bucket at {checkpoints} has its own versions, or a copy"
    raise InputError(
        f"--backup copies a state folder with its server.db, and --database has the rows elsewhere; stop {servers}, "
        f"and copy both: the database with pg_dump, {shared_folder or state_dir} with rsync -a{bucket}"
    )


def _ids_at(checkpoints: str) -> Collection[str]:
    """Of the checkpoints whose files are kept at a URL."""
    from cookhouse.server.storage.checkpoints.blob_files import BlobFiles, id_in

    return {id_in(name) for name in BlobFiles(checkpoints).found().files}
