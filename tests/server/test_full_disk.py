"""A server whose disk is full: what needs no room goes on, and what needs some is refused at once."""

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
import tinker
from tests.contract.calls import new_trainer, train
from tests.server.checkpoints.test_checkpoints import NEW, fill
from tests.server.conftest import OpenStore
from tests.server.fake_engine import FakeEngine
from tests.server.hosting import KEY, Host, hosted

from cookhouse.errors import InputError
from cookhouse.server.checkpoints.checkpoints import Checkpoints
from cookhouse.server.refusals import StorageBusyError
from cookhouse.server.store.store import Store

PROMPT = tinker.ModelInput.from_ints([1, 2, 3])
PARAMS = tinker.SamplingParams(max_tokens=2, stop=[])


@contextmanager
def full_disk() -> Iterator[None]:
    """No file of this process can be written to at all, which is harder than a full disk and needs no privilege."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def put_ttl(host: Host, path: str) -> httpx.Response:
    """Without the SDK, which would send it again for minutes."""
    model_id, checkpoint = path.removeprefix("tinker://").split("/", 1)
    url = f"{host.url}/api/v1/training_runs/{model_id}/checkpoints/{checkpoint}/ttl"
    return httpx.put(url, json={"ttl_seconds": 7200}, headers={"x-api-key": KEY}, timeout=30)


def test_all_that_needs_no_disk_works_on_a_full_one(tmp_path: Path) -> None:
    """Would catch a list of runs that keeps models from being made, and a deletion that hangs in retries."""
    with hosted(tmp_path, FakeEngine) as host, tinker.ServiceClient(base_url=host.url, api_key=KEY) as client:
        rest = tinker.RestClient(base_url=host.url, api_key=KEY)
        trainer = new_trainer(client)
        train(trainer, 1)
        path = trainer.save_state("kept").result().path
        doomed = trainer.save_state("doomed").result().path
        with full_disk():
            with tinker.ServiceClient(base_url=host.url, api_key=KEY) as second:
                train(new_trainer(second), 1)
                train(second.create_training_client_from_state_with_optimizer(path).result(), 1)
                for sampler in (
                    trainer.save_weights_and_get_sampling_client().result(),
                    second.create_sampling_client(model_path=path).result(),
                    second.create_sampling_client(base_model="cookhouse/tiny").result(),
                ):
                    assert len(sampler.sample(PROMPT, 1, PARAMS).result().sequences[0].tokens) == 2
            for save in (trainer.save_state, trainer.save_weights_for_sampler):
                with pytest.raises(tinker.RequestFailedError, match=r"could not be written.*free space") as failed:
                    save("new").result()
                assert failed.value.category == "server"
                assert str(tmp_path) not in str(failed.value)
            refused = put_ttl(host, path)
            assert refused.status_code == 503
            assert refused.headers["Retry-After"] == "1"
            assert "the service's database cannot be read or written: disk I/O error" in refused.json()["detail"]
            rest.delete_checkpoint_from_tinker_path(doomed).result()
            assert [one.tinker_path for one in rest.list_user_checkpoints().result().checkpoints] == [path]
            with pytest.raises(tinker.NotFoundError):
                rest.delete_checkpoint_from_tinker_path(doomed).result()
            assert len(list((tmp_path / "checkpoints").rglob("state.json"))) == 1
        assert trainer.save_state("doomed").result().path == doomed
        host.on_loop(host.service.sweep)
        assert len(list((tmp_path / "checkpoints").iterdir())) == 2
        assert len(rest.list_training_runs().result().training_runs) == 3
        assert len(rest.list_sessions().result().sessions) == 2


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
