"""All weights trained through the unmodified SDK: rank 0. On the real engine; the fake one has no weights."""

import pytest
import tinker
from tests.contract.calls import BASE_MODEL, new_trainer, train
from tests.contract.conftest import in_both_precisions
from tests.server.hosting import KEY, Host
from tinker import types

pytestmark = in_both_precisions


def _full_trainer(client: tinker.ServiceClient) -> tinker.TrainingClient:
    return client.create_lora_training_client(base_model=BASE_MODEL, rank=0).result()


@pytest.mark.slow
def test_a_run_of_all_weights_trains_samples_saves_and_resumes(host: Host) -> None:
    """Would catch a wire that refuses rank 0, calls it LoRA, or resumes without its optimizer."""
    with tinker.ServiceClient(base_url=host.url, api_key=KEY) as client:
        trainer = _full_trainer(client)
        info = trainer.get_info()
        assert (info.is_lora, info.lora_rank) == (False, None)
        losses = train(trainer, 3)
        assert losses[-1] < losses[0]
        path = trainer.save_state("middle").result().path
        rest = tinker.RestClient(base_url=host.url, api_key=KEY)
        run = rest.get_training_run_by_tinker_path(path).result()
        assert (run.is_lora, run.lora_rank) == (False, None)
        assert not rest.get_weights_info_by_tinker_path(path).result().is_lora
        sampler = trainer.save_weights_and_get_sampling_client().result()
        prompt = types.ModelInput.from_ints([3, 17, 4, 9])
        sampled = sampler.sample(prompt, 1, types.SamplingParams(max_tokens=4, temperature=0.0)).result()
        assert sampled.sequences[0].tokens
        expected = train(trainer, 3)
        with pytest.raises(tinker.TinkerError, match="another run trains all weights"):
            _full_trainer(client)
        with pytest.raises(tinker.TinkerError, match="export that checkpoint merged"):
            trainer.save_weights_external("other").result()
    with tinker.ServiceClient(base_url=host.url, api_key=KEY) as client:
        resumed = client.create_training_client_from_state_with_optimizer(path).result()
        assert train(resumed, 3) == expected


@pytest.mark.slow
def test_an_adapter_beside_it_is_not_touched(host: Host) -> None:
    """Would catch weights shared between a run that trains all of them and the base model of adapters."""
    with tinker.ServiceClient(base_url=host.url, api_key=KEY) as client:
        alone = train(new_trainer(client), 3)
        full, adapter = _full_trainer(client), new_trainer(client)
        train(full, 3)
        assert train(adapter, 3) == alone


@pytest.mark.parametrize("rank", [-1, 100_000])
def test_ranks_that_the_base_model_does_not_take_name_what_it_takes(host: Host, rank: int) -> None:
    """Would catch a limit of the server that is not that of the engine."""
    with (
        tinker.ServiceClient(base_url=host.url, api_key=KEY) as client,
        pytest.raises(tinker.TinkerError, match=r"allowed are 1 to \d+, and 0 to train all weights"),
    ):
        client.create_lora_training_client(base_model=BASE_MODEL, rank=rank).result()
