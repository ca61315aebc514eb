"""The order of a worker's commands where some wait for files: those of other models and snapshots do not."""

from collections.abc import Sequence
from dataclasses import dataclass

from cookhouse.engine.contract import (
    Command,
    Create,
    Fetch,
    Forget,
    Load,
    Pass,
    Publish,
    Sample,
    Save,
    SaveSnapshot,
    Step,
)

_Names = frozenset[tuple[str, str]]


@dataclass(slots=True)
class _Held:
    command: Command | None
    names: _Names | None
    """Of models, snapshots and commands that it is about; None: of all there are."""
    is_transfer: bool
    """Whether its files are to be sent ahead, and have not been."""
    is_under_way: bool = False


class CommandOrder:
    """Commands in the order in which they came, up to the end, which is None. For one thread.

    Each waits for those before it that are about the same; one that is about neither model nor snapshot for all.
    """

    def __init__(self) -> None:
        self._held: list[_Held] = []

    def put(self, command: Command | None, *, is_transfer: bool = False) -> None:
        self._held.append(_Held(command, _names(command), is_transfer))

    def arrived(self, command: Command) -> None:
        """The files of a command are at the worker, or cannot be: in its place this one is to be sent."""
        for held in self._held:
            if held.is_under_way and held.command is not None and held.command.command_id == command.command_id:
                held.command, held.is_transfer = command, False

    def take(self) -> tuple[Sequence[Command | None], Sequence[Command]]:
        """What is to be sent now, in order; and what is to be carried: `arrived` is to be called for each."""
        ready: list[Command | None] = []
        to_carry: list[Command] = []
        still: list[_Held] = []
        names: set[tuple[str, str]] = set()
        """Of those that wait."""
        is_all = False
        for held in self._held:
            is_free = not still or not (is_all or held.names is None or held.names & names)
            if is_free and not held.is_transfer:
                ready.append(held.command)
                continue
            if is_free and not held.is_under_way and held.command is not None:
                held.is_under_way = True
                to_carry.append(held.command)
            still.append(held)
            is_all = is_all or held.names is None
            names |= held.names or set()
        self._held = still
        return ready, to_carry


def _names(command: Command | None) -> _Names | None:
    match command:
        case Create() | Load() | Pass() | Step() | Save():
            names = [("model", command.model_id)]
        case Publish():
            names = [("model", command.model_id), ("snapshot", command.snapshot_id)]
        case Fetch() | SaveSnapshot():
            names = [("snapshot", command.snapshot_id)]
        case Sample():
            names = [("snapshot", command.request.snapshot_id or "")]
        case Forget():
            names = [
                *(("model", each) for each in command.model_ids),
                *(("snapshot", each) for each in command.snapshot_ids),
                *(("command", each) for each in command.command_ids),
            ]
        case _:
            return None
    return frozenset([*names, ("command", command.command_id)] if command.command_id else names)
