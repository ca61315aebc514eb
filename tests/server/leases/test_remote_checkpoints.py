"""Catches checkpoints that only the server has which saved them: these keep them in a bucket."""

import os
import signal
from pathlib import Path

import pytest
import tinker
from tests.contract.calls import new_trainer, train
from tests.server.hosting import KEY
from tests.server.leases.conftest import Shared, Start

pytestmark = pytest.mark.slow


def test_what_a_killed_server_saved_is_loaded_at_the_other(start: Start, shared: Shared) -> None:
    """Would catch a checkpoint that was acknowledged, and lies on the machine that is lost."""
    bucket = shared.folder / "bucket"
    first, second = (server.wait() for server in [start(f"--checkpoints=file://{bucket}") for _ in range(2)])
    with tinker.ServiceClient(base_url=first.url, api_key=KEY) as client:
        trainer = new_trainer(client)
        train(trainer, 2)
        path = trainer.save_state("mine").result().path
    os.kill(first.process.pid, signal.SIGKILL)
    first.end()
    caches = [shared.folder / f"server-{number}" / "checkpoints-cache" for number in (1, 2)]
    assert [len(list(cache.iterdir())) for cache in caches] == [1, 0]
    assert list((shared.folder / "shared" / "checkpoints").iterdir()) == []
    with tinker.ServiceClient(base_url=second.url, api_key=KEY) as other:
        loaded = other.create_training_client_from_state_with_optimizer(path).result()
        train(loaded, 1)
    rest = tinker.RestClient(base_url=second.url, api_key=KEY)
    assert [one.tinker_path for one in rest.list_user_checkpoints().result().checkpoints] == [path]
    rest.delete_checkpoint_from_tinker_path(path).result()
    assert [file.stem for file in Path(bucket).rglob("*") if file.is_file()] == ["owner", "owner"]
