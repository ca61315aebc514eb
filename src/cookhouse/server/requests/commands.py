"""What every command on a model has, and every plan of one."""

import uuid
from typing import Any

from cookhouse.engine.contract import Account
from cookhouse.errors import InputError
from cookhouse.server.sequencer.futures import Result
from cookhouse.server.sequencer.plans import Plan, Run, request_id_of
from cookhouse.server.sequencer.turn import Turn
from cookhouse.server.sessions.sessions import Model


def identity_of(model: Model) -> dict[str, Any]:
    """An id of the command's own, the model's, and whose it is."""
    account = Account(model.owner, model.session_id)
    return {"command_id": uuid.uuid4().hex, "account": account, "model_id": model.model_id}


def check_seq_id(name: str, number: int) -> None:
    """Refuse a number that a database has no room for."""
    if not 0 <= number < 2**63:
        raise InputError(f"{name} is {number}; allowed are 0 to 2^63 - 1")


def plan_of(model: Model, seq_id: int | None, run: Run, **options: Any) -> Plan:
    """What to do on a model that there is; for `options` see `Plan`.

    Raises:
        InputError: the `seq_id` cannot be one.
    """
    if seq_id is not None:
        check_seq_id("seq_id", seq_id)
    return Plan(model=model, request_id=request_id_of(model.model_id, seq_id), seq_id=seq_id, run=run, **options)


def refusal_of(model: Model, seq_id: int | None, error: InputError) -> Plan:
    """A request that fails in its turn, and does nothing."""

    async def run(_turn: Turn) -> Result:
        raise error

    return plan_of(model, seq_id, run, changes_model=False)
