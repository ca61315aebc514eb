"""What a restart keeps, and what one tenant sees of another."""

from pathlib import Path

import pytest
import tinker
from tests.contract.calls import BASE_MODEL, DATA, new_trainer, train
from tests.server.fake_engine import FakeEngine
from tests.server.hosting import KEY, OTHER_KEY, hosted


def test_checkpoints_outlive_the_server(tmp_path: Path) -> None:
    """Would catch a checkpoint that is only in memory, or whose row and folder part ways."""
    with hosted(tmp_path, FakeEngine) as host, tinker.ServiceClient(base_url=host.url, api_key=KEY) as client:
        trainer = new_trainer(client)
        train(trainer, 2)
        path = trainer.save_state("kept").result().path
        expected = train(trainer, 2)
    with hosted(tmp_path, FakeEngine) as host, tinker.ServiceClient(base_url=host.url, api_key=KEY) as client:
        rest = tinker.RestClient(base_url=host.url, api_key=KEY)
        assert [one.tinker_path for one in rest.list_user_checkpoints().result().checkpoints] == [path]
        assert rest.get_training_run_by_tinker_path(path).result().base_model == BASE_MODEL
        resumed = client.create_training_client_from_state_with_optimizer(path).result()
        assert train(resumed, 2) == expected


def test_a_flipped_bit_is_refused_as_the_services_damage(tmp_path: Path) -> None:
    """Would catch weights that nobody trained, a caller blamed for them, and folders of the server's shown."""
    with hosted(tmp_path, FakeEngine) as host, tinker.ServiceClient(base_url=host.url, api_key=KEY) as client:
        trainer = new_trainer(client)
        train(trainer, 1)
        state = trainer.save_state("state").result().path
        sampler = trainer.save_weights_for_sampler("sampler").result().path
        for file in (tmp_path / "checkpoints").rglob("state.json"):
            content = file.read_bytes()
            at = content.index(b"0.")
            file.write_bytes(content[:at] + b"1" + content[at + 1 :])
        prompt, params = tinker.ModelInput.from_ints([1]), tinker.SamplingParams(max_tokens=1)
        for path, load in (
            (state, lambda: client.create_training_client_from_state(state).result()),
            (state, lambda: client.create_training_client_from_state_with_optimizer(state).result()),
            (sampler, lambda: client.create_sampling_client(sampler).result().sample(prompt, 1, params).result()),
        ):
            with pytest.raises(tinker.RequestFailedError, match=f"{path} is damaged on the service's side") as failed:
                load()
            assert failed.value.category == "server"
            assert str(tmp_path) not in str(failed.value)
        train(trainer, 1)


def test_another_tenant_sees_nothing(tmp_path: Path) -> None:
    """Would catch a look-up that forgets to ask whose it is."""
    with (
        hosted(tmp_path, FakeEngine) as host,
        tinker.ServiceClient(base_url=host.url, api_key=KEY) as mine,
        tinker.ServiceClient(base_url=host.url, api_key=OTHER_KEY) as theirs,
    ):
        trainer = new_trainer(mine)
        train(trainer, 1, DATA)
        path = trainer.save_state("mine").result().path
        sampler = trainer.save_weights_and_get_sampling_client().result()
        rest = tinker.RestClient(base_url=host.url, api_key=OTHER_KEY)
        assert rest.list_user_checkpoints().result().checkpoints == []
        assert rest.list_training_runs().result().training_runs == []
        assert str(trainer.model_id).split(":")[0] not in rest.list_sessions().result().sessions
        for refused in (
            lambda: theirs.create_training_client_from_state(path).result(),
            lambda: theirs.create_sampling_client(path).result(),
            lambda: rest.get_training_run_by_tinker_path(path).result(),
            lambda: rest.list_checkpoints(trainer.model_id).result(),
            lambda: rest.delete_checkpoint_from_tinker_path(path).result(),
            lambda: rest.set_checkpoint_ttl_from_tinker_path(path, 7200).result(),
            lambda: rest.get_weights_info_by_tinker_path(path).result(),
            lambda: rest.get_sampler(sampler._sampling_session_id).result(),
        ):
            with pytest.raises(tinker.NotFoundError):
                refused()
        assert len(tinker.RestClient(base_url=host.url, api_key=KEY).list_training_runs().result().training_runs) == 1
