"""Whose turn it is at the engine: decided here with commands and seconds, carried out by the loop.

    commands ──► errands: by owner, then session ──────────────────────────┐
             └─► work on models: by owner, then model, in order of arrival ┼──► next turn
                                             has the engine samples? ──────┘

Owners take turns, then the models of an owner (for errands its sessions): those that were served fewest tokens go
first (`Rotation`). When the one whose turn it is starts with a pass, the passes at the heads of other models' queues
ride along, one per model, up to `max_pass_tokens`, in the same order of owners. Training and sampling share the
engine's time half and half while both have work. Errands are short; between two turns they take a bounded time.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from cookhouse.engine.contract import Command, ModelCommand, Pass, Sample, TurnKind
from cookhouse.engine.rotation import Rotation

_ERRAND_SECONDS = 0.05
"""What errands may take between two turns: about a decode step."""
_COMMAND_TOKENS = 256
"""Tokens that a command counts besides its own, however few those are."""

IsHeld = Callable[[Command], bool]
"""Whether a command cannot run yet, for lack of room say; those of its queue wait behind it."""


@dataclass(frozen=True, slots=True)
class Turn:
    """The engine's next work: one command, passes that run together, or (sample) one step of all samples."""

    kind: TurnKind
    commands: tuple[Command, ...] = ()


def num_tokens(command: Command) -> int:
    """Tokens that a command counts as, in the order of turns and in the accounts of owners."""
    if isinstance(command, Pass):
        return sum(datum.tokens_T.size for datum in command.request.data_D)
    return command.request.prompt_T.size if isinstance(command, Sample) else 0


class Queues:
    """Commands in queues, which belong to owners."""

    def __init__(self) -> None:
        self._queues: dict[str, deque[Command]] = {}
        """By key; none is empty."""
        self._owners: Rotation[str] = Rotation()
        self._keys: dict[str, Rotation[str]] = {}
        """By owner."""
        self._owner_of: dict[str, str] = {}
        """By key: of the command that the queue began with."""
        self._key_of: dict[str, str] = {}
        """By command id."""

    def put(self, key: str, command: Command) -> None:
        """Add to a queue."""
        if key not in self._queues:
            owner = self._owner_of[key] = command.account.owner
            self._queues[key] = deque()
            self._owners.add(owner)
            self._keys.setdefault(owner, Rotation()).add(key)
        self._queues[key].append(command)
        self._key_of[command.command_id] = key

    def can_take(self, is_held: IsHeld) -> bool:
        """True if some command can run."""
        return self._first(is_held) is not None

    def take(self, *, max_tokens: int, is_held: IsHeld) -> tuple[Command, ...]:
        """The next command; a pass, and those of other queues that may run with it."""
        key = self._first(is_held)
        if key is None:
            return ()
        taken = [self._pop(key)]
        if isinstance(taken[0], Pass):
            taken += self._riders(key, max_tokens - num_tokens(taken[0]))
        return tuple(taken)

    def drop(self, command_id: str) -> Command | None:
        """Take a command out, if it is here."""
        key = self._key_of.pop(command_id, None)
        if key is None:
            return None
        queue = self._queues[key]
        index = next(index for index, command in enumerate(queue) if command.command_id == command_id)
        command = queue[index]
        del queue[index]
        self._tidy(key)
        return command

    def drop_all(self, key: str) -> list[Command]:
        """Take all commands of a queue out."""
        commands = list(self._queues.get(key, ()))
        for command in commands:
            del self._key_of[command.command_id]
        if commands:
            self._queues[key].clear()
            self._tidy(key)
        return commands

    def _first(self, is_held: IsHeld) -> str | None:
        for owner in self._owners.order():
            for key in self._keys[owner].order():
                if not is_held(self._queues[key][0]):
                    return key
        return None

    def _riders(self, first: str, room: int) -> list[Command]:
        """Passes at the heads of queues, one of each owner at a time."""
        waiting: dict[str, deque[str]] = {}
        for owner in self._owners.order() if room > 0 else ():
            keys = [key for key in self._keys[owner].order() if key != first]
            if passes := [key for key in keys if isinstance(self._queues[key][0], Pass)]:
                waiting[owner] = deque(passes)
        taken: list[Command] = []
        while waiting and room > 0:
            owner = self._owners.first(waiting)
            key = waiting[owner].popleft()
            if not waiting[owner]:
                del waiting[owner]
            size = num_tokens(self._queues[key][0])
            if size <= room:
                taken.append(self._pop(key))
                room -= size
        return taken

    def _pop(self, key: str) -> Command:
        command = self._queues[key].popleft()
        del self._key_of[command.command_id]
        amount = num_tokens(command) + _COMMAND_TOKENS
        owner = self._owner_of[key]
        self._owners.charge(owner, amount)
        self._keys[owner].charge(key, amount)
        self._tidy(key)
        return command

    def _tidy(self, key: str) -> None:
        if self._queues[key]:
            return
        del self._queues[key]
        owner = self._owner_of.pop(key)
        self._keys[owner].remove(key)
        if not self._keys[owner]:
            del self._keys[owner]
            self._owners.remove(owner)


class Turns:
    """Work that waits for the engine. `deterministic`: no pass shares a turn."""

    def __init__(self, *, max_pass_tokens: int, deterministic: bool = False) -> None:
        self._max_tokens = 0 if deterministic else max_pass_tokens
        self._training = Queues()
        self._errands = Queues()
        self._share = TimeShare()
        self._errand_seconds = 0.0

    def put(self, command: Command) -> None:
        """Have a command wait for its turn."""
        if isinstance(command, ModelCommand):
            self._training.put(command.model_id, command)
        else:
            self._errands.put(f"{command.account.owner}/{command.account.session_id}", command)

    def drop(self, command_id: str) -> Command | None:
        """Take a command out, if it waits."""
        return self._training.drop(command_id) or self._errands.drop(command_id)

    def drop_model(self, model_id: str) -> list[Command]:
        """Take all that waits for a model out."""
        return self._training.drop_all(model_id)

    def next(self, *, can_sample: bool, is_held: IsHeld = lambda _command: False) -> Turn | None:
        """The next turn, to be charged for when it is over; None if nothing can run now."""
        errand = self._next_errand(is_held) if self._errand_seconds < _ERRAND_SECONDS else None
        return errand or self._next_long(can_sample, is_held) or self._next_errand(is_held)

    def charge(self, turn: Turn, seconds: float) -> None:
        """Count the time of the turn that was given last."""
        if turn.kind == "other":
            self._errand_seconds += seconds
        else:
            self._errand_seconds = 0.0
            self._share.charge(seconds, training=turn.kind == "train")

    def _next_errand(self, is_held: IsHeld) -> Turn | None:
        errand = self._errands.take(max_tokens=0, is_held=is_held)
        return Turn("other", errand) if errand else None

    def _next_long(self, can_sample: bool, is_held: IsHeld) -> Turn | None:
        can_train = self._training.can_take(is_held)
        if not (can_train or can_sample):
            return None
        if self._share.is_trainings_turn(can_train=can_train, can_sample=can_sample):
            return Turn("train", self._training.take(max_tokens=self._max_tokens, is_held=is_held))
        return Turn("sample")


class TimeShare:
    """Half of the engine's time for training and half for sampling, counted while both have work."""

    def __init__(self) -> None:
        self._training_lead_seconds = 0.0
        self._is_contended = False

    def is_trainings_turn(self, *, can_train: bool, can_sample: bool) -> bool:
        """True if the next turn is one of training, where at least one of both has work."""
        self._is_contended = can_train and can_sample
        if not self._is_contended:
            self._training_lead_seconds = 0.0
            return can_train
        return self._training_lead_seconds < 0

    def charge(self, seconds: float, *, training: bool) -> None:
        """Count the turn that was just decided."""
        if self._is_contended:
            self._training_lead_seconds += seconds if training else -seconds
