"""Several base models behind one server, and the names that the published SDK asks for them by."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
import tinker
from tests.contract.calls import BASE_MODEL, train
from tests.contract.conftest import TORCH_ENGINES, make_torch_engine
from tests.server.fake_engine import FakeEngine
from tests.server.hosting import KEY, Host, hosted
from tinker import types

PUBLISHED = "Qwen/Qwen3-8B"
PROMPT = types.ModelInput.from_ints([3, 17, 4, 9])
PARAMS = types.SamplingParams(max_tokens=4, temperature=0.0, stop=[])


@pytest.fixture(scope="module", params=["fake", *TORCH_ENGINES])
def renamed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    """A server of one model under two names, neither of them its folder."""
    make = FakeEngine if request.param == "fake" else partial(make_torch_engine, request.param)
    sources = {PUBLISHED: BASE_MODEL, "second": BASE_MODEL}
    with hosted(tmp_path_factory.mktemp("state"), make, sources=sources) as host:
        yield host


@pytest.fixture
def service(renamed: Host) -> Iterator[tinker.ServiceClient]:
    with tinker.ServiceClient(base_url=renamed.url, api_key=KEY) as client:
        yield client


def test_capabilities_have_the_names_to_ask_for(renamed: Host) -> None:
    """Would catch a client that is told a folder of the server's, or the last model alone."""
    rest = tinker.RestClient(base_url=renamed.url, api_key=KEY)
    supported = rest.get_server_capabilities().result().supported_models
    assert [model.model_name for model in supported] == [PUBLISHED, "second"]


@pytest.mark.parametrize("name", [PUBLISHED, f"{PUBLISHED}:peft:262144"])
def test_a_program_with_a_published_name_runs(renamed: Host, service: tinker.ServiceClient, name: str) -> None:
    """Would catch a name that is known when a run begins, and no longer when its weights are saved, read or sampled."""
    trainer = service.create_lora_training_client(base_model=name, rank=4, seed=1).result()
    assert trainer.get_info().model_data.model_name == name
    losses = train(trainer, 2)
    sampler = trainer.save_weights_and_get_sampling_client().result()
    sampled = sampler.sample(PROMPT, 1, PARAMS).result().sequences[0].tokens
    kept, state = trainer.save_weights_for_sampler("w").result().path, trainer.save_state("s").result().path
    rest = tinker.RestClient(base_url=renamed.url, api_key=KEY)
    assert rest.get_weights_info_by_tinker_path(state).result().base_model == name
    assert rest.get_training_run_by_tinker_path(state).result().base_model == name
    for base_model in (None, PUBLISHED):
        loaded = service.create_sampling_client(kept, base_model=base_model).result()
        assert list(loaded.sample(PROMPT, 1, PARAMS).result().sequences[0].tokens) == list(sampled)
    resumed = service.create_training_client_from_state_with_optimizer(state).result()
    assert train(resumed, 1)[0] < losses[0]


def test_a_name_that_is_not_offered_is_refused_with_those_that_are(service: tinker.ServiceClient) -> None:
    for asking in (service.create_lora_training_client, service.create_sampling_client):
        with pytest.raises(tinker.BadRequestError, match=rf"did you mean {PUBLISHED}.*-m NAME=FOLDER"):
            asking(base_model="Qwen/Qwen3-80B").result()


def test_models_are_told_apart(tmp_path: Path) -> None:
    """Would catch one of two models serving for both, and weights of one read into the other."""
    with (
        hosted(tmp_path, lambda: FakeEngine(["one", "two"])) as host,
        tinker.ServiceClient(base_url=host.url, api_key=KEY) as client,
    ):
        trainer = client.create_lora_training_client(base_model="two:peft:64", rank=4).result()
        path = trainer.save_weights_for_sampler("w").result().path
        with pytest.raises(tinker.BadRequestError, match="was trained on 'two:peft:64', not on 'one'"):
            client.create_sampling_client(model_path=path, base_model="one").result()
        with pytest.raises(tinker.BadRequestError, match="cannot be loaded over 'one'"):
            client.create_training_client_from_state(path, base_model="one").result()
