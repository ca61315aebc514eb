"""A database that another program has locked, as a copy of it does: who needs no row of it waits for nobody."""

from pathlib import Path

import pytest
import tinker
from tests.contract.calls import new_trainer, train
from tests.server.fake_engine import FakeEngine
from tests.server.hosting import KEY, hosted
from tests.server.store.test_database import locked

from cookhouse.server.store import database

PROMPT = tinker.ModelInput.from_ints([1, 2, 3])
PARAMS = tinker.SamplingParams(max_tokens=2, stop=[])


@pytest.fixture(params=[30.0, 0.2], ids=["patient", "impatient"])
def patience_seconds(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> float:
    """How long the server waits for the lock: longer than it is held, or shorter."""
    monkeypatch.setattr(database, "_BUSY_SECONDS", request.param)
    return float(request.param)


def test_samples_and_steps_go_on_and_saves_wait_or_are_refused(tmp_path: Path, patience_seconds: float) -> None:
    """Would catch an engine, or the server's loop, that waits for a row."""
    with hosted(tmp_path, FakeEngine) as host, tinker.ServiceClient(base_url=host.url, api_key=KEY) as client:
        trainer, other = new_trainer(client), new_trainer(client)
        sampler = trainer.save_weights_and_get_sampling_client().result()
        kept = trainer.save_state("kept").result().path
        with locked(tmp_path / "server.db"):
            save = trainer.save_state("new")
            publish = other.save_weights_for_sampler("new")
            for _ in range(2):
                train(trainer, 1)
                train(other, 1)
                for one in (sampler, trainer.save_weights_and_get_sampling_client().result()):
                    assert len(one.sample(PROMPT, 1, PARAMS).result().sequences[0].tokens) == 2
            with tinker.ServiceClient(base_url=host.url, api_key=KEY) as second:
                train(new_trainer(second), 1)
                train(second.create_training_client_from_state(kept).result(), 1)
            if patience_seconds < 1:
                for refused in (save, publish):
                    with pytest.raises(
                        tinker.RequestFailedError, match=r"locked by another program.*try again"
                    ) as told:
                        refused.result()
                    assert told.value.category == "server"
                host.on_loop(host.service.sweep)
        if patience_seconds < 1:
            save, publish = trainer.save_state("new"), other.save_weights_for_sampler("new")
        paths = {save.result().path, publish.result().path, kept}
        rest = tinker.RestClient(base_url=host.url, api_key=KEY)
        listed = rest.list_user_checkpoints().result().checkpoints
        assert {checkpoint.tinker_path for checkpoint in listed} == paths
        assert len(rest.list_training_runs().result().training_runs) == 4
        assert len(list((tmp_path / "checkpoints").iterdir())) == 3
