"""What an accepted request is going to do, and how it is known again."""

import hashlib
import secrets
import time
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cookhouse.server.sequencer.futures import TRAIN_PREFIX, Result
from cookhouse.server.sessions.ids import part_of
from cookhouse.server.sessions.sessions import Model

if TYPE_CHECKING:
    from cookhouse.server.sequencer.turn import Turn
    from cookhouse.server.storage.journal.rows import Change

Run = Callable[["Turn"], Awaitable[Result]]
"""Does what a request asks for, in its turn. It may be run again, in another process, and does the same then."""

Drawn = Mapping[str, Any]
"""What the server drew for a request when it accepted it, as JSON: a replay has the same."""


def draw() -> dict[str, Any]:
    """An id, a seed and the time, for any request."""
    return {"id": uuid.uuid4().hex, "seed": secrets.randbits(31), "at": time.time()}


def request_id_of(model_id: str, name: int | str | None) -> str:
    """The id of a model's request, by its `seq_id` or what it is: every copy of it has the same. None: a new one."""
    prefix = TRAIN_PREFIX + part_of(model_id.partition(":")[0])
    if name is None:
        return prefix + secrets.token_hex(12)
    return prefix + hashlib.sha256(f"{model_id} {name}".encode()).hexdigest()[:24]


def _nothing() -> None:
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    model: Model
    request_id: str
    seq_id: int | None
    run: Run
    num_bytes: int = 0
    """Of its arrays."""
    is_creation: bool = False
    """Whether it makes the model: before all others."""
    changes_model: bool = True
    """Whether later requests depend on it."""
    rows: "Sequence[Change]" = ()
    """To be written with it."""
    on_accepted: Callable[[], None] = _nothing
    """Called before it is queued."""
