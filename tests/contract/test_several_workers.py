"""The real engine behind several workers gives what it gives behind one."""

import pytest
import tinker
from tests.contract.calls import PROMPT, greedy, new_trainer, train
from tests.contract.conftest import of_several_workers
from tests.server.hosting import KEY, Host


@of_several_workers
@pytest.mark.slow
def test_several_workers_give_what_one_gives(host: Host, float32_host: Host) -> None:
    """Would catch weights that change on their way to another worker, and a sampler of others' weights."""

    def work(url: str) -> object:
        with tinker.ServiceClient(base_url=url, api_key=KEY) as client:
            trainers = [new_trainer(client, seed) for seed in (1, 2)]
            losses = [train(trainer, 4) for trainer in trainers]
            samplers = [trainer.save_weights_and_get_sampling_client().result() for trainer in trainers]
            drawing = [sampler.sample(PROMPT, 2, greedy(16)) for sampler in samplers for _ in range(4)]
            return losses, [[one.tokens for one in each.result().sequences] for each in drawing]

    assert work(host.url) == work(float32_host.url)


@pytest.mark.parametrize("engine", ["float32_together"])
@pytest.mark.slow
def test_a_model_that_moves_goes_on_to_the_bit(host: Host, float32_host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """Would catch a step that is lost or repeated on the way to another worker, and moments that stay behind."""
    pool = host.service.pool
    first, second = pool.workers
    monkeypatch.setattr(pool.placement, "better_worker", lambda *_: second)

    def work(url: str) -> object:
        with tinker.ServiceClient(base_url=url, api_key=KEY) as client:
            trainer = new_trainer(client, 1)
            losses = train(trainer, 3)
            model_id = trainer.get_info().model_id
            if url == host.url:
                assert model_id in pool.placement.models_of(first)
                host.on_loop(lambda: host.service.supervisor.balance(model_id, 1))
            losses += train(trainer, 3)
            assert url != host.url or model_id in pool.placement.models_of(second)
            sampler = trainer.save_weights_and_get_sampling_client().result()
            return losses, [one.tokens for one in sampler.sample(PROMPT, 2, greedy(16)).result().sequences]

    assert work(host.url) == work(float32_host.url)
