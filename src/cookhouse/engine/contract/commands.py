"""Commands to a worker. Commands of one model run in the order in which they were submitted.

Every command but `Forget` is answered by exactly one `Done` or `Failed` with its `command_id`, unless its worker is
lost. A command that failed has changed nothing, and later ones run.

A URL names files: `file:///FOLDER` for a folder that server and worker both see, `worker://ID/NAME` for one that the
worker keeps to itself, whose files are read by `Read`. It is never a tenant's text.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

from cookhouse.engine.contract.requests import AdamStep, ForwardBackward, LoraSpec, SampleRequest

Url = str
Form = Literal["state", "weights", "external"]
"""Training state; weights for samplers; weights for other libraries."""


class Account(NamedTuple):
    """Whose command it is: for fair turns, and for counting what was used."""

    owner: str
    session_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    command_id: str
    account: Account


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCommand(Command):
    """Work on one model, in its turn."""

    model_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Create(ModelCommand):
    """Make a model that leaves its base model's output unchanged. Done: None."""

    base_model: str
    lora: LoraSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Load(ModelCommand):
    """Make a model, or overwrite it, from files of the form state or weights. Done: None."""

    base_model: str
    lora: LoraSpec
    url: Url
    sha256: Mapping[str, str] | None = None
    """As `Saved` has it, of files that have to be what they were; None: they are read as they are."""
    with_optimizer: bool
    with_gradient: bool = False
    """Go on as the model was when it was saved, to the bit: with the gradient of its passes since its last step too,
    which is zero where the files hold none. Values are taken as they are, infinite ones as well.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Pass(ModelCommand):
    """Add to a model's gradient, or only compute. Done: `ForwardBackwardOutput`."""

    request: ForwardBackward


@dataclass(frozen=True, slots=True, kw_only=True)
class Step(ModelCommand):
    """Apply and clear a model's gradient. Done: the metrics, by name."""

    adam: AdamStep


@dataclass(frozen=True, slots=True, kw_only=True)
class Save(ModelCommand):
    """Write a model as it is in its turn into a new folder, atomically. Done, once it is on the disk: `Saved`."""

    url: Url
    form: Form
    with_optimizer: bool = False
    with_gradient: bool = False
    """Of the form state: with the gradient that passes have added up since the last step."""
    base_name: str = ""
    """What others call the base model: for the form external."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Publish(ModelCommand):
    """Fix a model's present weights under an id, for sampling, in memory. Done: None."""

    snapshot_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetch(Command):
    """Read weights for sampling from files of the form state or weights. Done: None.

    Samples of them may be submitted at once: they wait, and fail as the fetch does. The files are read again where the
    weights have been dropped from memory in between.
    """

    snapshot_id: str
    base_model: str
    lora: LoraSpec
    url: Url
    sha256: Mapping[str, str] | None = None
    """As that of `Load`, compared whenever they are read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SaveSnapshot(Command):
    """Write weights that were published or fetched into a new folder, as a `Save` of the form weights does. Done, once
    they are on the disk: `Saved`. Fails where they are unknown, or have been dropped.
    """

    snapshot_id: str
    url: Url


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample(Command):
    """Draw samples; `command_id` is the request's id, its seed is set. Done: `SampleOutput`; before it `Tokens`."""

    request: SampleRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class Forget(Command):
    """Free models, snapshots and folders, and cancel commands that are not done. Never fails, has no answer of its own.

    Done before whatever else waits. What is canceled fails with the kind "canceled"; so does what waits for a model
    that is freed, and what was to make a snapshot. A pass under way is done first, so is a save that is being written.
    """

    model_ids: tuple[str, ...] = ()
    snapshot_ids: tuple[str, ...] = ()
    command_ids: tuple[str, ...] = ()
    urls: tuple[Url, ...] = ()
    """Folders below `worker://`, to be deleted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspect(Command):
    """Say what the worker does now. Done: `WorkerStatus`, at once, also in the middle of a turn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Read(Command):
    """Read a part of a file below a `worker://` URL. Done: bytes, fewer than asked for only at the file's end."""

    url: Url
    """With the file's name behind the folder's."""
    offset: int
    num_bytes: int
