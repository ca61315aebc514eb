"""Plans of requests: the work of each, the id that every copy of it has, and the identity of its command."""

import hashlib
import secrets
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cookhouse.engine.contract import Account
from cookhouse.errors import InputError
from cookhouse.server.sequencer.attempts import Attempt, Run
from cookhouse.server.sequencer.futures import TRAIN_PREFIX, Result
from cookhouse.server.sessions.sessions import Model, part_of
from cookhouse.server.storage.journal import Change

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


def creation_id_of(model_id: str) -> str:
    """The id of the request that makes a model."""
    return request_id_of(model_id, "creation")


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestPlan:
    """The work of an accepted request."""

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
    rows: Sequence[Change] = ()
    """To be written with it."""
    on_accepted: Callable[[], None] | None = None
    """Called before it is queued."""


def plan_of(model: Model, seq_id: int | None, run: Run, **options: Any) -> RequestPlan:
    """A plan for a model that there is; for `options` see `RequestPlan`.

    Raises:
        InputError: the `seq_id` cannot be one.
    """
    if seq_id is not None:
        check_seq_id("seq_id", seq_id)
    return RequestPlan(model=model, request_id=request_id_of(model.model_id, seq_id), seq_id=seq_id, run=run, **options)


def refusal_of(model: Model, seq_id: int | None, error: InputError) -> RequestPlan:
    """A request that fails in its turn, and does nothing."""

    async def run(_attempt: Attempt) -> Result:
        raise error

    return plan_of(model, seq_id, run, changes_model=False)


def identity_of(model: Model) -> dict[str, Any]:
    """An id of the command's own, the model's, and whose it is."""
    account = Account(model.owner, model.session_id)
    return {"command_id": uuid.uuid4().hex, "account": account, "model_id": model.model_id}


def check_seq_id(name: str, number: int) -> None:
    """Refuse a number that a database has no room for."""
    if not 0 <= number < 2**63:
        raise InputError(f"{name} is {number}; allowed are 0 to 2^63 - 1")
