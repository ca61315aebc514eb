"""The order of a worker's commands where some wait for files: those of other models and snapshots do not."""

from collections.abc import Sequence
from dataclasses import dataclass

from cookhouse.engine.contract import (
    Command,
    Create,
    Fetch,
    Forget,
    Inspect,
    Load,
    ModelCommand,
    Pass,
    Publish,
    Read,
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
    """Of models and snapshots that it is about; none: it waits for nothing; None: for all there is."""
    is_transfer: bool
    """Whether its files are to be sent ahead, and have not been."""
    is_under_way: bool = False


class CommandOrder:
    """Commands in the order in which they came, up to the end, which is None. For one thread.

    Each waits for those before it that are about the same model or snapshot, and the end for all. What
    is done at once, or of files that are there, waits for none and holds up none: `Forget`, `Inspect`, `Read`.
    """

    def __init__(self) -> None:
        self._held: list[_Held] = []

    def put(self, command: Command | None, *, is_transfer: bool = False) -> None:
        self._held.append(_Held(command, _names(command), is_transfer))

    def drop(self, forget: Forget) -> list[Command]:
        """Take out what a `Forget` cancels: the worker never gets these, and their end is to be reported."""
        dropped: list[Command] = []
        still: list[_Held] = []
        for held in self._held:
            if held.command is not None and _cancels(forget, held.command):
                dropped.append(held.command)
            else:
                still.append(held)
        self._held = still
        return dropped

    def arrived(self, command: Load | Fetch) -> None:
        """The files of a command are at the worker, or cannot be: in its place this one is to be sent."""
        for held in self._held:
            if held.is_under_way and held.command is not None and held.command.command_id == command.command_id:
                held.command, held.is_transfer = command, False

    def take(self) -> tuple[Sequence[Command | None], Sequence[Load | Fetch]]:
        """Commands to be sent now, in order; and those to be carried: `arrived` is to be called for each."""
        ready: list[Command | None] = []
        to_carry: list[Load | Fetch] = []
        still: list[_Held] = []
        names: set[tuple[str, str]] = set()
        """Of those that wait."""
        is_all = False
        for held in self._held:
            is_free = not still or (held.names is not None and not (held.names and (is_all or held.names & names)))
            if is_free and not held.is_transfer:
                ready.append(held.command)
                continue
            if is_free and not held.is_under_way and isinstance(held.command, Load | Fetch):
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
        case Forget() | Inspect() | Read():
            names = []
        case _:
            return None
    return frozenset(names)


def _cancels(forget: Forget, command: Command) -> bool:
    """True if it ends a command that waits: one of a model, one by its id, or one that was to make a snapshot."""
    if command.command_id in forget.command_ids:
        return True
    if isinstance(command, ModelCommand) and command.model_id in forget.model_ids:
        return True
    return isinstance(command, Fetch | Publish) and command.snapshot_id in forget.snapshot_ids
