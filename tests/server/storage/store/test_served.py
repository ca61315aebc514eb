"""A whole server over each kind of database, and over its restart."""

from pathlib import Path

import httpx
import pytest
import tinker
from tests.contract.calls import new_trainer, train
from tests.server.conftest import Place
from tests.server.fake_engine import FakeEngine
from tests.server.hosting import KEY, OTHER_KEY, hosted
from tests.server.storage.store.test_store import HOSTILE

from cookhouse.server.storage.store.store import Store


def test_what_is_kept_is_there_after_a_restart(tmp_path: Path, place: Place) -> None:
    """Would catch an answer that needs a row of the one database, in a form that the other has not."""
    with hosted(tmp_path, FakeEngine, store=Store(place)) as host:
        with tinker.ServiceClient(base_url=host.url, api_key=KEY, user_metadata={"note": HOSTILE}) as client:
            trainer = new_trainer(client)
            train(trainer, 1)
            path = trainer.save_state("first", ttl_seconds=7200).result().path
            with pytest.raises(tinker.RequestFailedError, match="exists; save under another name"):
                trainer.save_state("first").result()
            trainer.save_state("first", overwrite=True).result()
            doomed = trainer.save_weights_for_sampler("doomed").result().path
        rest = tinker.RestClient(base_url=host.url, api_key=KEY)
        rest.publish_checkpoint_from_tinker_path(path).result()
        rest.delete_checkpoint_from_tinker_path(doomed).result()
    with hosted(tmp_path, FakeEngine, store=Store(place)) as host:
        rest = tinker.RestClient(base_url=host.url, api_key=KEY)
        [kept] = rest.list_user_checkpoints().result().checkpoints
        assert (kept.tinker_path, kept.public) == (path, True)
        [run] = rest.list_training_runs().result().training_runs
        assert run.training_run_id == path.split("/")[2]
        [session] = rest.list_sessions().result().sessions
        assert run.training_run_id in rest.get_session(session).result().training_run_ids
        with tinker.ServiceClient(base_url=host.url, api_key=OTHER_KEY) as other:
            train(other.create_training_client_from_state(path).result(), 1)
        assert httpx.get(f"{host.url}/readyz", trust_env=False).status_code == 200


def test_hostile_names_are_refused_and_not_failures(tmp_path: Path, place: Place) -> None:
    """Would catch a name that the database cannot take for one, which is a 500, and retried for minutes."""
    with hosted(tmp_path, FakeEngine, store=Store(place)) as host, httpx.Client(trust_env=False) as http:
        http.headers["x-api-key"] = KEY
        for path in (
            "training_runs/a%00b",
            "sessions/a%00b",
            "sessions/a%00b/usage",
            "training_runs?limit=9999999999999999999999",
            "training_runs?offset=9999999999999999999999",
            "sessions?offset=9223372036854775808",
            "checkpoints?offset=9223372036854775808",
        ):
            answer = http.get(f"{host.url}/api/v1/{path}")
            assert answer.status_code < 500, (path, answer.text)
