"""Archives that SDKs before 0.36 download, by plain HTTP: newer ones cannot ask for them."""

import io
import json
import tarfile
from collections.abc import Mapping
from email.utils import parsedate_to_datetime

import httpx
import pytest
import tinker
from safetensors.numpy import load
from tests.contract.calls import new_trainer, train
from tests.server.hosting import KEY, OTHER_KEY, Host


@pytest.fixture
def engine() -> str:
    return "float32"


def ask(host: Host, path: str, key: str = KEY) -> httpx.Response:
    run_id, name = path.removeprefix("tinker://").split("/", 1)
    url = f"{host.url}/api/v1/training_runs/{run_id}/checkpoints/{name}/archive"
    return httpx.get(url, headers={"X-API-Key": key, "Accept": "application/gzip"}, timeout=120, trust_env=False)


def files_in(answer: httpx.Response) -> Mapping[str, bytes]:
    with tarfile.open(fileobj=io.BytesIO(answer.content)) as archive:
        return {one.name: found.read() for one in archive if (found := archive.extractfile(one)) is not None}


def test_it_has_the_adapter_in_the_layout_of_peft(host: Host, client: tinker.ServiceClient) -> None:
    """Would catch an archive of files that no other library reads, and a link for whoever guesses it."""
    trainer = new_trainer(client)
    train(trainer, 1)
    saved = trainer.save_weights_for_sampler("w1").result().path
    redirect = ask(host, saved)
    assert redirect.status_code == 302
    assert parsedate_to_datetime(redirect.headers["expires"]).tzinfo is not None
    url = redirect.headers["location"]
    found = files_in(httpx.get(url, trust_env=False))
    external = files_in(
        httpx.get(ask(host, trainer.save_weights_external("e1").result().path).headers["location"], trust_env=False)
    )
    assert set(external) == {"adapter_config.json", "adapter_model.safetensors"} <= set(found)
    assert json.loads(found["adapter_config.json"])["r"] == 8
    tensors = load(found["adapter_model.safetensors"])
    assert all(name.startswith("base_model.model.") for name in tensors)
    assert any(tensor.any() for name, tensor in tensors.items() if "lora_B" in name), "nothing of it was trained"
    assert ask(host, saved, OTHER_KEY).status_code == 404
    assert httpx.get(f"{url}x", trust_env=False).status_code == 404
    rest = tinker.RestClient(base_url=host.url, api_key=KEY)
    rest.delete_checkpoint_from_tinker_path(saved).result()
    assert httpx.get(url, trust_env=False).status_code == 404
