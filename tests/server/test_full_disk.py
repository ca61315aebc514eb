"""A server whose disk is full: what needs no room goes on, and what needs some waits for it, or fails in words."""

import errno
import re
import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
import tinker
from tests.contract.calls import new_trainer, train
from tests.server.conftest import OpenStore
from tests.server.fake_engine import FakeEngine
from tests.server.hosting import KEY, Host, hosted
from tests.server.storage.checkpoints.test_checkpoints import NEW, fill
from tests.server.test_routes import Server
from tests.server.test_silence import HeldEngine
from tests.server.unwritable import full_disk
from tests.waiting import wait_until

from cookhouse.errors import InputError
from cookhouse.server.refusals import StorageBusyError
from cookhouse.server.settings import Settings
from cookhouse.server.storage.checkpoints.checkpoints import Checkpoints
from cookhouse.server.storage.store.store import Store

PROMPT = tinker.ModelInput.from_ints([1, 2, 3])
PARAMS = tinker.SamplingParams(max_tokens=2, stop=[])


def put_ttl(host: Host, path: str) -> httpx.Response:
    """Without the SDK, which would send it again for minutes."""
    model_id, checkpoint = path.removeprefix("tinker://").split("/", 1)
    url = f"{host.url}/api/v1/training_runs/{model_id}/checkpoints/{checkpoint}/ttl"
    return httpx.put(url, json={"ttl_seconds": 7200}, headers={"x-api-key": KEY}, timeout=30)


def test_a_full_disk_holds_up_no_deletion_and_no_sample(tmp_path: Path) -> None:
    """Would catch a deletion that hangs in retries, a list that fails, and a client that a full disk ends."""
    settings = Settings(store_patience_seconds=0.2)
    with (
        hosted(tmp_path, FakeEngine, settings) as host,
        tinker.ServiceClient(base_url=host.url, api_key=KEY) as client,
        ThreadPoolExecutor(2) as threads,
    ):
        rest = tinker.RestClient(base_url=host.url, api_key=KEY)
        trainer, undisturbed = new_trainer(client), new_trainer(client)
        expected = train(undisturbed, 2)
        path = trainer.save_state("kept").result().path
        doomed = trainer.save_state("doomed").result().path
        samplers = (
            trainer.save_weights_and_get_sampling_client().result(),
            client.create_sampling_client(model_path=path).result(),
            client.create_sampling_client(base_model="cookhouse/tiny").result(),
        )
        with full_disk():
            training = threads.submit(train, trainer, 2)
            loading = threads.submit(client.create_training_client_from_state_with_optimizer, path)
            for sampler in samplers:
                assert len(sampler.sample(PROMPT, 1, PARAMS).result().sequences[0].tokens) == 2
            refused = put_ttl(host, path)
            assert refused.status_code == 503
            assert refused.headers["Retry-After"] == "1"
            assert "the service's database cannot be read or written: disk I/O error" in refused.json()["detail"]
            rest.delete_checkpoint_from_tinker_path(doomed).result()
            assert [one.tinker_path for one in rest.list_user_checkpoints().result().checkpoints] == [path]
            with pytest.raises(tinker.NotFoundError):
                rest.delete_checkpoint_from_tinker_path(doomed).result()
            assert len(list((tmp_path / "checkpoints").rglob("state.json"))) == 1
        assert training.result(60) == expected
        assert train(loading.result(60).result(), 2) == expected
        assert trainer.save_state("doomed").result().path == doomed
        host.on_loop(host.service.sweeper.sweep)
        assert len(list((tmp_path / "checkpoints").iterdir())) == 2
        assert len(rest.list_training_runs().result().training_runs) == 3


@pytest.mark.parametrize("route", ["/save_weights", "/save_weights_for_sampler"])
def test_a_save_that_was_accepted_fails_in_words(tmp_path: Path, route: str) -> None:
    """Would catch a save that is told to be done, one that is waited for without end, and files without a name."""
    engine = HeldEngine()
    with hosted(tmp_path, lambda: engine, Settings(store_patience_seconds=0.2)) as host:
        server = Server(host, engine)
        with server.http:
            model_id = server.model(server.session())
            server.forward_backward(model_id, 1)
            wait_until(lambda: engine.calls[-1][0] == "begin")
            save = server.post(route, model_id=model_id, seq_id=2, path="new")["request_id"]
            with full_disk():
                engine.free.set()
                told = server.result(save).json()
                assert told["category"] == "server"
                assert re.search(r"could not be written.*free space", told["error"])
                assert str(tmp_path) not in told["error"]
            again = server.post(route, model_id=model_id, seq_id=3, path="new")["request_id"]
            assert server.result(again).json()["path"].endswith("/new")
            assert server.result(save).json() == told
            assert len(list((tmp_path / "checkpoints").iterdir())) == 1


@pytest.mark.filterwarnings("ignore:DEPRECATED. TrainingClient.load_state")
def test_a_load_without_room_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Would catch a load that is waited for without end, a model of half a checkpoint, and files left behind."""
    engine = FakeEngine()
    with (
        hosted(tmp_path, lambda: engine) as host,
        tinker.ServiceClient(base_url=host.url, api_key=KEY) as client,
    ):
        trainer, undisturbed = new_trainer(client), new_trainer(client)
        path = trainer.save_state("kept").result().path
        assert train(trainer, 1) == train(undisturbed, 1)
        with monkeypatch.context() as full:
            full.setattr(Path, "hardlink_to", no_room)
            full.setattr(shutil, "copyfile", no_room)
            with pytest.raises(
                tinker.RequestFailedError, match=r"kept could not be loaded: No space.*free space"
            ) as told:
                trainer.load_state_with_optimizer(path).result()
        assert told.value.category == "server"
        assert list((tmp_path / "loads").iterdir()) == []
        assert train(trainer, 1) == train(undisturbed, 1)
        with monkeypatch.context() as other_disk:
            other_disk.setattr(Path, "hardlink_to", no_room)
            trainer.load_state_with_optimizer(path).result()
        assert train(trainer, 1) == train(new_trainer(client), 1)


def no_room(*_: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_deletion_that_a_full_disk_held_up_outlives_the_server(tmp_path: Path, open_store: OpenStore) -> None:
    """Would catch a deleted checkpoint that is back after a restart, as a name without files."""
    store = open_store(tmp_path / "server.db")
    checkpoints = Checkpoints(tmp_path / "checkpoints", store)
    row, other = (checkpoints.write(NEW, fill), checkpoints.write(replace(NEW, name="other"), fill))
    with full_disk():
        checkpoints.delete(row)
    assert store.checkpoint_ids() == {other.checkpoint_id}
    store.close()
    again = open_store(tmp_path / "server.db")
    assert again.checkpoint_ids() == {row.checkpoint_id, other.checkpoint_id}
    checkpoints = Checkpoints(tmp_path / "checkpoints", again)
    assert again.checkpoint_ids() == {other.checkpoint_id}
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == [other.checkpoint_id]


def test_a_checkpoint_without_room_for_its_row_leaves_nothing(tmp_path: Path, open_store: OpenStore) -> None:
    """Would catch files that nobody knows of, and a refusal that ends a run though it can be sent again."""
    store = open_store(tmp_path / "server.db")
    checkpoints = Checkpoints(tmp_path / "checkpoints", store)
    with full_disk(), pytest.raises(StorageBusyError, match=r"database cannot be .* written.*Free space"):
        checkpoints.write(NEW, lambda folder: folder.mkdir())
    assert list((tmp_path / "checkpoints").iterdir()) == []
    assert store.checkpoint_ids() == set()


def test_a_server_that_cannot_write_its_database_says_so(tmp_path: Path) -> None:
    with full_disk(), pytest.raises(InputError, match=r"server\.db cannot be opened as a database: disk I/O error"):
        Store(tmp_path / "server.db")
