"""What the tests of transports share."""

import sys
from pathlib import Path

import numpy as np

from cookhouse.engine.contract import (
    Account,
    ForwardBackward,
    HostBaseModel,
    Pass,
    TrainingDatum,
    WorkerOptions,
)

ACCOUNT = Account("tenant", "session")
FAKE_CHILD = (sys.executable, "-m", "tests.engine.transports.fake_child")


def options(folder: Path) -> WorkerOptions:
    return WorkerOptions(
        worker="w1", folder=folder, max_snapshot_bytes=2**20, max_snapshot_file_bytes=2**20, max_pass_tokens=1024
    )


def do(what: str, command_id: str = "do") -> HostBaseModel:
    """Has `fake_child` do something."""
    return HostBaseModel(command_id=command_id, account=ACCOUNT, base_model=what)


def a_pass(num_rows: int, num_tokens: int, command_id: str = "1") -> Pass:
    """Row i counts from i on."""
    rows = [
        TrainingDatum(
            tokens_T=np.arange(num_tokens) + index,
            loss_fn_inputs={"weights": np.full(num_tokens, index, dtype=np.float32)},
        )
        for index in range(num_rows)
    ]
    request = ForwardBackward(model_id="m", data_D=rows, loss_fn="cross_entropy", loss_fn_config={"a": 0.5, "b": "c"})
    return Pass(command_id=command_id, account=ACCOUNT, model_id="m", request=request)
