"""Events of a worker, in the order in which they happen."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from cookhouse.engine.contract.commands import Account, Form, Url
from cookhouse.engine.contract.failures import Failure
from cookhouse.engine.contract.requests import BaseModelInfo, ForwardBackwardOutput, SampleOutput
from cookhouse.engine.contract.status import WorkerStatus

SpentKind = Literal["trained_tokens", "scored_tokens", "prompt_tokens", "sampled_tokens", "engine_seconds"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved:
    """Files that a `Save` or `SaveSnapshot` has written."""

    url: Url
    form: Form
    sizes: Mapping[str, int]
    """Bytes, by file name relative to the folder."""
    sha256: Mapping[str, str] = field(default_factory=dict)
    """Digests by the same names, hexadecimal; of all files, or of none."""


Output = ForwardBackwardOutput | SampleOutput | Saved | WorkerStatus | Mapping[str, float] | bytes | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """Room of a worker: reported with `Up`, and again when it has changed by more than a little."""

    free_bytes: int
    """That a new model may take; what nobody uses makes way for it."""
    base_models: tuple[str, ...]
    """Those that are loaded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Up:
    """The worker takes commands: always its first event but for `Logged`."""

    worker: str
    base_models: tuple[BaseModelInfo, ...]
    description: str
    """What it computes on, in words."""
    room: Room
    node: str = ""
    """The address of Ray's node that it is on; empty where it is on the server's machine by itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    command_id: str
    output: Output = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    command_id: str
    failure: Failure


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokens:
    """One step of a streamed sample."""

    command_id: str
    output: SampleOutput


class Amount(NamedTuple):
    account: Account
    kind: SpentKind
    amount: float
    command_id: str = ""
    """What it was used for; none: for files, whose answer may come first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """Usage of accounts since it was last reported: before the answer of what it counts; where there is none, at most
    ten times a second. What a command used that is answered by another worker is not to be counted.
    """

    amounts: tuple[Amount, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Evicted:
    """A snapshot was dropped for others; samples of it fail from now on."""

    snapshot_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Logged:
    """A record of the worker's log, for the server's."""

    name: str
    level: int
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Lost:
    """The worker is gone; made by what carries its events, and the last of them. What was not done may be gone."""

    worker: str
    reason: str
    failure: Failure | None = None
    """Why it never came up, if that is it: a base model that cannot be loaded, say."""

    @classmethod
    def by(cls, error: Exception, worker: str = "") -> "Lost":
        """The end of a worker by an exception."""
        failure = Failure.of(error)
        return cls(worker=worker, reason=failure.message, failure=failure)


Event = Up | Room | Done | Failed | Tokens | Spent | Evicted | Logged | Lost
