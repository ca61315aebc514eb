"""Memory of a worker, as far as the server knows: base models, published weights, and what is free."""

import time
from collections.abc import Collection
from dataclasses import dataclass, replace

from cookhouse.engine.contract import Account, Command, Create, Fetch, Forget, Load, LoraSpec, Room, Sample, Up

_REMEMBERED_SECONDS = 60.0
"""A refusal for want of memory: others on the machine may have freed some, which nobody reports."""


@dataclass(frozen=True, slots=True)
class Need:
    """Weights that a command needs memory for, as far as they matter when workers are chosen."""

    base_model: str
    lora: LoraSpec | None = None
    """Of the weights on it, whatever their seed; None: there are none."""
    trains: bool = False

    @classmethod
    def of(cls, command: Create | Load | Fetch) -> "Need":
        shape = replace(command.lora, seed=0)
        return cls(command.base_model, shape, trains=not isinstance(command, Fetch))


@dataclass(frozen=True, slots=True)
class Shape:
    """Base model and adapter shape of weights."""

    account: Account
    base_model: str
    lora: LoraSpec

    def need(self, *, trains: bool) -> Need:
        """Need of a worker that has them."""
        return Need(self.base_model, replace(self.lora, seed=0), trains=trains)


class WorkerMemory:
    """Of one worker."""

    def __init__(self) -> None:
        self.room: Room | None = None
        """As it was reported last; None: the worker is not up."""
        self.snapshots: set[str] = set()
        """Published weights that the worker was given."""
        self.fetched: set[str] = set()
        """Those that it read from a file: it may evict them without a report, and read them again."""
        self.evicted: set[str] = set()
        """Published weights that it has evicted, or could not read, and others have."""
        self.base_model_bytes: dict[str, int] = {}
        """By base model, loaded or not, as far as the worker knows them."""
        self._unloadable: set[str] = set()
        """Base models of which a model that was moved to the worker could not be loaded."""
        self._refused_at: dict[Need, float] = {}
        """What there was no memory for when it was asked last, on the clock of `time.monotonic`."""

    def begin(self, up: Up) -> None:
        """A worker is up."""
        self._unloadable.clear()
        self.base_model_bytes = {info.name: info.num_bytes for info in up.base_models}
        self.note_room(up.room)

    def end(self) -> None:
        """The worker, and with it all published weights that it had, is lost, or has ended."""
        self.snapshots, self.fetched, self.evicted = set(), set(), set()

    def lose(self, snapshot_ids: Collection[str]) -> None:
        """The worker is not asked for weights any more, which go with it."""
        self.snapshots -= set(snapshot_ids)

    def note_loaded(self, snapshot_id: str) -> None:
        """The worker is about to read weights that a client may ask for by name."""
        self.snapshots.add(snapshot_id)

    def has_base_model(self, name: str) -> bool:
        """True if a base model is loaded, as far as is known."""
        return self.room is None or name in self.room.base_models

    def lacks_room(self, need: Need) -> bool:
        """True if there is no memory for this, as far as is known: the worker has said so, and reported no change
        since; or the base model takes more than is free.
        """
        refused_at = self._refused_at.get(need)
        if refused_at is not None and time.monotonic() - refused_at < _REMEMBERED_SECONDS:
            return True
        if self.room is None or self.has_base_model(need.base_model):
            return False
        return self.base_model_bytes.get(need.base_model, 0) > self.room.free_bytes

    def has_room(self, need: Need, num_bytes: int) -> bool:
        """True if so much is free besides the base model, as reported, and the worker can load that."""
        if self.room is None or self.lacks_room(need) or need.base_model in self._unloadable:
            return False
        is_loaded = self.has_base_model(need.base_model)
        base_model_bytes = 0 if is_loaded else self.base_model_bytes.get(need.base_model, 0)
        return self.room.free_bytes >= base_model_bytes + num_bytes

    def note_room(self, room: Room) -> None:
        """The worker reports what it has room for."""
        if self.room is None or room.free_bytes != self.room.free_bytes:
            self._refused_at.clear()
        self.room = room

    def note_refusal(self, command: Command) -> None:
        """The worker has no memory for a command. Of a sample that is the base model, if it is not loaded: where a
        cache is too small for one, others may fit.
        """
        if isinstance(command, Create | Load | Fetch):
            self._refused_at[Need.of(command)] = time.monotonic()
        elif isinstance(command, Sample) and not self.has_base_model(command.request.base_model):
            self._refused_at[Need(command.request.base_model)] = time.monotonic()

    def note_unloadable(self, base_model: str) -> None:
        """A model that was moved to the worker could not be loaded there."""
        self._unloadable.add(base_model)

    def note_published(self, snapshot_id: str) -> None:
        """The worker is about to publish weights."""
        self.snapshots.add(snapshot_id)
        self.fetched.discard(snapshot_id)

    def note_fetched(self, snapshot_id: str) -> None:
        """The worker is about to read weights from a file."""
        self.snapshots.add(snapshot_id)
        self.fetched.add(snapshot_id)

    def evict(self, snapshot_id: str) -> None:
        """The worker has weights no more, and others may have them; those that were forgotten meanwhile stay so."""
        if snapshot_id in self.snapshots:
            self.forget(snapshot_id)
            self.evicted.add(snapshot_id)

    def forget(self, snapshot_id: str) -> None:
        """Remember nothing of weights."""
        for names in (self.snapshots, self.fetched, self.evicted):
            names.discard(snapshot_id)

    def knows(self, command: Forget) -> bool:
        """True if the worker has, or had, any published weights that are to be forgotten."""
        return any(name in self.snapshots or name in self.evicted for name in command.snapshot_ids)
