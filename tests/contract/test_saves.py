"""Catches a save that holds up training, is of a later step, or is acknowledged before it is on disk."""

import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import tinker
from tests.contract.calls import ADAM, DATA, new_trainer, train
from tests.server.fake_engine import FakeEngine
from tests.server.hosting import KEY, hosted


class SlowDisk(FakeEngine):
    """Writes training state when told to; with `can_copy` False it has no memory for copies."""

    def __init__(self, *, can_copy: bool = True) -> None:
        super().__init__()
        self.go = threading.Event()
        self._can_copy = can_copy

    def copy_state(self, model_id: str, **parts: bool) -> Callable[[Path], None] | None:
        write = super().copy_state(model_id, **parts)
        assert write is not None

        def write_late(folder: Path) -> None:
            assert self.go.wait(20)
            write(folder)

        return write_late if self._can_copy else None

    def save_state(self, model_id: str, folder: Path, **parts: bool) -> None:
        write = super().copy_state(model_id, **parts)
        assert write is not None
        write(folder)


def test_training_goes_on_while_a_save_is_written(tmp_path: Path) -> None:
    engine = SlowDisk()
    with hosted(tmp_path, lambda: engine) as host, tinker.ServiceClient(base_url=host.url, api_key=KEY) as client:
        trainer = new_trainer(client)
        train(trainer, 2)
        saving = trainer.save_state("middle")
        expected = train(trainer, 3)  # ends only if the engine does not wait for the disk
        with pytest.raises(TimeoutError):
            saving.result(timeout=0.3)
        assert list((tmp_path / "checkpoints").iterdir()) == []
        engine.go.set()
        path = saving.result().path
        resumed = client.create_training_client_from_state_with_optimizer(path).result()
        assert train(resumed, 3) == expected


def test_more_saves_than_copies_may_wait_are_all_written_in_order(tmp_path: Path) -> None:
    """Would catch an overwritten name that ends with an older step, and copies without bound."""
    engine = SlowDisk()
    with hosted(tmp_path, lambda: engine) as host, tinker.ServiceClient(base_url=host.url, api_key=KEY) as client:
        trainer = new_trainer(client)
        saves = []
        for _ in range(7):
            trainer.forward_backward(DATA, "cross_entropy")
            trainer.optim_step(ADAM)
            saves.append(trainer.save_state("same", overwrite=True))
        engine.go.set()
        paths = {save.result().path for save in saves}
        assert len(paths) == 1
        expected = train(trainer, 2)
        resumed = client.create_training_client_from_state_with_optimizer(paths.pop()).result()
        assert train(resumed, 2) == expected


def test_a_name_asked_for_again_before_it_is_written_keeps_the_first(tmp_path: Path) -> None:
    """Would catch two saves under one name that are both acknowledged: the name is free until the first is written."""
    engine = SlowDisk()
    with hosted(tmp_path, lambda: engine) as host, tinker.ServiceClient(base_url=host.url, api_key=KEY) as client:
        trainer = new_trainer(client)
        first = trainer.save_state("same")
        expected = train(trainer, 2)
        second = trainer.save_state("same")
        train(trainer, 1)  # both are waiting for the disk
        engine.go.set()
        path = first.result().path
        with pytest.raises(tinker.TinkerError, match="exists"):
            second.result()
        assert len(list((tmp_path / "checkpoints").iterdir())) == 1
        resumed = client.create_training_client_from_state_with_optimizer(path).result()
        assert train(resumed, 2) == expected


def test_without_memory_for_a_copy_the_state_is_still_saved(tmp_path: Path) -> None:
    """Would catch a large run that can train but not save."""
    with (
        hosted(tmp_path, lambda: SlowDisk(can_copy=False)) as host,
        tinker.ServiceClient(base_url=host.url, api_key=KEY) as client,
    ):
        trainer = new_trainer(client)
        train(trainer, 2)
        path = trainer.save_state("middle").result().path
        expected = train(trainer, 2)
        resumed = client.create_training_client_from_state_with_optimizer(path).result()
        assert train(resumed, 2) == expected
