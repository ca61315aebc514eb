"""What every command on a model has."""

import uuid
from typing import Any

from cookhouse.engine.contract import Account
from cookhouse.server.sessions.sessions import Model


def identity_of(model: Model) -> dict[str, Any]:
    """An id of the command's own, the model's, and whose it is."""
    account = Account(model.owner, model.session_id)
    return {"command_id": uuid.uuid4().hex, "account": account, "model_id": model.model_id}
