"""Weights in a public format, as the SDK saves, lists, downloads and deletes them."""

import json
from pathlib import Path
from typing import Any
from urllib.request import ProxyHandler, build_opener

import httpx
import numpy as np
import pyrage
import pytest
import tinker
import torch
from peft import PeftModel
from tests.contract.calls import BASE_MODEL, DATA, new_trainer, train
from tests.contract.conftest import in_both_precisions
from tests.engine.numerics import WAYS, assert_logprobs_near
from tests.server.hosting import KEY, OTHER_KEY, Host
from transformers import AutoModelForCausalLM

from cookhouse.assets import resolve_model


def rest_of(host: Host, key: str = KEY) -> tinker.RestClient:
    return tinker.RestClient(base_url=host.url, api_key=key)


def download(host: Host, path: str, folder: Path) -> dict[str, str]:
    """Fetch every file of a checkpoint as the SDK's command line does, without a key; returns the links."""
    response = rest_of(host).get_external_weights_urls(path).result()
    folder.mkdir()
    for name, url in response.urls.items():
        with build_opener(ProxyHandler({})).open(url, timeout=10) as answer:
            content = answer.read()
        assert len(content) == int(answer.headers["Content-Length"])
        (folder / name).write_bytes(content)
    return response.urls


def test_saved_weights_can_be_downloaded(host: Host, trainer: tinker.TrainingClient, tmp_path: Path) -> None:
    """Would catch links that need a key, and files that are not those of the layout."""
    saved = trainer.save_weights_external("e1").result()
    assert saved.path.endswith("/external_weights/e1")
    download(host, saved.path, tmp_path / "adapter")
    config = json.loads((tmp_path / "adapter" / "adapter_config.json").read_text())
    assert (config["r"], config["lora_alpha"]) == (8, 32)
    assert sorted(path.name for path in (tmp_path / "adapter").iterdir()) == [
        "adapter_config.json",
        "adapter_model.safetensors",
    ]


@pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing.")  # of the model that peft wraps
@in_both_precisions
def test_peft_computes_what_was_trained(host: Host, client: tinker.ServiceClient, engine: str, tmp_path: Path) -> None:
    """Would catch weights of another moment: training goes on after the save, before the download."""
    trainer = client.create_lora_training_client(BASE_MODEL, rank=8, seed=1, train_unembed=False).result()
    train(trainer, 3)
    expected = trainer.forward(DATA, "cross_entropy").result().loss_fn_outputs
    saving = trainer.save_weights_external("trained")
    train(trainer, 1)
    download(host, saving.result().path, tmp_path / "adapter")
    base = AutoModelForCausalLM.from_pretrained(resolve_model(BASE_MODEL), dtype=torch.float32)
    model = PeftModel.from_pretrained(base, str(tmp_path / "adapter")).eval()
    for datum, output in zip(DATA, expected, strict=True):
        tokens_T = torch.tensor(datum.model_input.to_ints())
        targets_T = torch.tensor(datum.loss_fn_inputs["target_tokens"].data)
        with torch.no_grad():
            logprobs_TV = torch.log_softmax(model(tokens_T.unsqueeze(0)).logits[0].float(), -1)
        logprobs_T = logprobs_TV.gather(1, targets_T.unsqueeze(1)).squeeze(1)
        assert_logprobs_near(logprobs_T.numpy(), np.array(output["logprobs"].data), WAYS[engine])


def test_they_are_listed_and_deleted_like_others(host: Host, trainer: tinker.TrainingClient, tmp_path: Path) -> None:
    rest = rest_of(host)
    path = trainer.save_weights_external("e1", ttl_seconds=7200).result().path
    run_id = path.removeprefix("tinker://").split("/")[0]
    (listed,) = rest.list_checkpoints(run_id).result().checkpoints
    assert (listed.checkpoint_type, listed.checkpoint_id) == ("external", "external_weights/e1")
    assert (listed.tinker_path, listed.expires_at is None) == (path, False)
    assert listed.size_bytes
    assert path in [one.tinker_path for one in rest.list_user_checkpoints().result().checkpoints]
    links = download(host, path, tmp_path / "adapter")
    rest.delete_checkpoint_from_tinker_path(path).result()
    assert rest.list_checkpoints(run_id).result().checkpoints == []
    for link in links.values():
        assert httpx.get(link, trust_env=False).status_code == 404
    with pytest.raises(tinker.NotFoundError):
        rest.get_external_weights_urls(path).result()


def test_what_cannot_be_saved_is_refused(trainer: tinker.TrainingClient) -> None:
    trainer.save_weights_external("e1").result()
    for name, options, message in (
        ("e1", {}, "exists; save under another name"),
        ("../e1", {}, "cannot name a checkpoint"),
        ("a/b", {}, "cannot name a checkpoint"),
        ("e2", {"ttl_seconds": 5}, "ttl_seconds is 5"),
        ("e2", {"age_encryption_recipients": ["age1qqqq"]}, r"'age1qqqq', cannot be encrypted to"),
        ("e2", {"age_encryption_recipients": []}, "has 0 keys"),
    ):
        with pytest.raises(tinker.TinkerError, match=message):
            trainer.save_weights_external(name, **options).result()
    trainer.save_weights_external("e2").result()


def test_they_cannot_be_loaded(client: tinker.ServiceClient, trainer: tinker.TrainingClient) -> None:
    path = trainer.save_weights_external("e1").result().path
    with pytest.raises(tinker.TinkerError, match="holds files for other libraries"):
        client.create_training_client_from_state(path).result()
    with pytest.raises(tinker.TinkerError, match="holds files for other libraries"):
        client.create_sampling_client(model_path=path).result().sample(
            tinker.ModelInput.from_ints([1]), 1, tinker.SamplingParams(max_tokens=1)
        ).result()


def test_another_tenant_gets_no_links(host: Host, trainer: tinker.TrainingClient) -> None:
    """Would catch a route that looks a checkpoint up by its path alone."""
    path = trainer.save_weights_external("e1").result().path
    with pytest.raises(tinker.NotFoundError):
        rest_of(host, OTHER_KEY).get_external_weights_urls(path).result()
    state = trainer.save_state("s1").result().path
    run_id = state.removeprefix("tinker://").split("/")[0]
    route = f"{host.url}/api/v1/training_runs/{run_id}/checkpoints/weights/s1/external_weights_urls"
    refused = httpx.get(route, headers={"X-API-Key": KEY}, trust_env=False)
    assert (refused.status_code, "holds no external weights" in refused.json()["detail"]) == (400, True)
    assert httpx.get(route, trust_env=False).status_code == 401
    for forged in (
        "0" * 32 + "/9999999999/" + "0" * 64 + "/adapter_config.json",
        "../../x",
        "a/1/b/..%2f..%2fserver.db",
    ):
        answer = httpx.get(f"{host.url}/api/v1/external_weights/{forged}", trust_env=False)
        assert answer.status_code == 404


def test_the_published_download_of_a_training_checkpoint(
    host: Host, client: tinker.ServiceClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Upstream's own way from a training checkpoint to files: it loads it, has it saved encrypted to a key of its own,
    fetches and decrypts each file, and deletes what was saved.
    """
    weights: Any = pytest.importorskip("tinker_cookbook.weights", reason="needs tinker-cookbook, which `make` installs")
    trainer = new_trainer(client)
    train(trainer, 1)
    path = trainer.save_state("s1").result().path
    plain = trainer.save_weights_external("plain").result().path
    monkeypatch.setenv("TINKER_API_KEY", KEY)
    for source, folder in ((path, "decrypted"), (plain, "plain")):
        weights.download(tinker_path=source, output_dir=str(tmp_path / folder), base_url=host.url)
    files = {path.name: path.read_bytes() for path in (tmp_path / "plain").iterdir()}
    assert sorted(files) == ["adapter_config.json", "adapter_model.safetensors"]
    assert {path.name: path.read_bytes() for path in (tmp_path / "decrypted").iterdir()} == files
    listed = rest_of(host).list_user_checkpoints().result().checkpoints
    assert "download" not in {one.tinker_path.rpartition("/")[2] for one in listed}


def test_encrypted_files_are_for_their_readers_alone(
    host: Host, trainer: tinker.TrainingClient, tmp_path: Path
) -> None:
    """Would catch a file in the clear beside the encrypted ones, and names that upstream does not know as encrypted."""
    reader = pyrage.x25519.Identity.generate()
    saved = trainer.save_weights_external("e1", age_encryption_recipients=[str(reader.to_public())]).result()
    names = download(host, saved.path, tmp_path / "files")
    assert sorted(names) == ["adapter_config.json.age", "adapter_model.safetensors.age"]
    config = pyrage.decrypt((tmp_path / "files" / "adapter_config.json.age").read_bytes(), [reader])
    assert json.loads(config)["r"] == 8
