"""`cookhouse serve --backup`: a copy of a server's state folder."""

from functools import partial
from pathlib import Path

import typer


def back_up_state(state_dir: Path, folder: Path, journal: str | None) -> None:
    """Copy a state folder, and say what the copy lacks. `journal` is as the server has it.

    Raises:
        InputError: there is no state folder, or the copy cannot be written.
        ServiceError: the database is damaged or locked, or files went faster than they could be copied.
    """
    from cookhouse.server.backup.backup import back_up
    from cookhouse.telemetry import make_console, say

    tell = partial(say, make_console(stderr=True))
    lost = back_up(state_dir, folder, journal=journal if journal and "://" in journal else None, say=tell)
    if lost:
        tell(f"{state_dir} has lost what its database names, so that the backup lacks it, too: {', '.join(lost)}")
    typer.echo(f"backed up {state_dir} to {folder}; to serve it: cookhouse serve --state-dir {folder}")
