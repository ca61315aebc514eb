"""`python -m cookhouse.server` that kills itself at a named moment, and may have other settings.

    python -m tests.kills.killing_server '{"settings": {"state_seconds": 0.2}}' --port 8000 ...
    python -m tests.kills.killing_server '{"moment": "state", "nth": 3, "times": 2, "folder": "/tmp/f"}' --port 8000 ...

It dies when the moment comes for the nth time in its life, and leaves a file in the folder; started again it does so
until it has died so many times.
"""

import json
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial, wraps
from pathlib import Path
from typing import Any

from cookhouse.server import __main__ as program
from cookhouse.server.requests.intake import Intake
from cookhouse.server.settings import Settings
from cookhouse.server.startup.libraries import hide_torch
from cookhouse.server.storage.journal import AddEntry, GroupCommit, PutState

MODULE = "tests.kills.killing_server"
OFTEN = {"state_seconds": 0.2, "state_cost": 1.0}
"""Settings with which states are taken all the time."""


class Killer:
    """Kills this process at the nth call, so many times among all processes that have the same folder."""

    def __init__(self, nth: int, times: int, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        self._places = [folder / str(number) for number in range(times)]
        self._left = nth

    def __call__(self) -> None:
        self._left -= 1
        if self._left == 0 and self._takes_place():
            os.kill(os.getpid(), signal.SIGKILL)

    def _takes_place(self) -> bool:
        """Servers that share sessions may come here at once: the file of a place is made by one of them."""
        for place in self._places:
            with suppress(FileExistsError):
                place.touch(exist_ok=False)
                return True
        return False


def _around_commits(kind: type, before: Killer | None = None, after: Killer | None = None) -> None:
    name = "keep" if kind is PutState else "commit"  # as the server writes them
    commit = getattr(GroupCommit, name)

    @wraps(commit)
    async def killing(self: GroupCommit, *changes: Any, **options: Any) -> None:
        is_meant = any(isinstance(change, kind) for change in changes)
        if is_meant and before is not None:
            before()
        await commit(self, *changes, **options)
        if is_meant and after is not None:
            after()

    setattr(GroupCommit, name, killing)


def _in_replays(killer: Killer) -> None:
    run = Intake.run

    @wraps(run)
    async def killing(self: Intake, *args: Any) -> Any:
        killer()
        return await run(self, *args)

    Intake.run = killing  # type: ignore[assignment,method-assign]


MOMENTS: dict[str, Callable[[Killer], None]] = {
    "before a commit": lambda killer: _around_commits(AddEntry, before=killer),
    "between commit and answer": lambda killer: _around_commits(AddEntry, after=killer),
    "between a result and its state": lambda killer: _around_commits(PutState, before=killer),
    "behind a state": lambda killer: _around_commits(PutState, after=killer),
    "during a replay": _in_replays,
}


def killing_module(
    settings: Mapping[str, float],
    *,
    moment: str | None = None,
    nth: int = 1,
    times: int = 1,
    folder: Path | None = None,
) -> Sequence[str]:
    """What `KeptServer` starts as its module; without a moment it only has other settings."""
    options: dict[str, Any] = {"settings": dict(settings)}
    if moment is not None:
        options |= {"moment": moment, "nth": nth, "times": times, "folder": str(folder)}
    return MODULE, json.dumps(options)


def main() -> int:
    options = json.loads(sys.argv[1])
    program.Settings = partial(Settings, **options["settings"])  # type: ignore[assignment,attr-defined]
    if "moment" in options:
        MOMENTS[options["moment"]](Killer(options["nth"], options["times"], Path(options["folder"])))
    return program.main(sys.argv[2:])


if __name__ == "__main__":
    hide_torch()
    program.exit_with(main())
