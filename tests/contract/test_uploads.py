"""What tinker 0.39 adds, from its documented shapes by plain HTTP: no published SDK here has it yet."""

from collections.abc import Iterator, Mapping
from typing import Any

import httpx
import pytest
import tinker
from tests.contract.calls import BASE_MODEL, DATA, PROMPT, new_trainer, train
from tests.contract.conftest import make_torch_engine
from tests.server.hosting import KEY, OTHER_KEY, Host, hosted

from cookhouse.server.settings import Settings

LORA = {"rank": 8, "seed": 1}


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    settings = Settings(max_upload_bytes=2**22)
    with hosted(tmp_path_factory.mktemp("state"), make_torch_engine, settings) as host:
        yield host


@pytest.fixture(scope="module")
def http(host: Host) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=f"{host.url}/api/v1", headers={"X-API-Key": KEY}, timeout=60, trust_env=False) as client:
        yield client


@pytest.fixture(scope="module")
def client(host: Host) -> Iterator[tinker.ServiceClient]:
    with tinker.ServiceClient(base_url=host.url, api_key=KEY) as client:
        yield client


@pytest.fixture(scope="module")
def trained(client: tinker.ServiceClient) -> tinker.TrainingClient:
    trainer = new_trainer(client)
    train(trainer, 2)
    return trainer


@pytest.fixture(scope="module")
def files(host: Host, trained: tinker.TrainingClient) -> Mapping[str, bytes]:
    """External weights, by name."""
    path = trained.save_weights_external("e1").result().path
    urls = tinker.RestClient(base_url=host.url, api_key=KEY).get_external_weights_urls(path).result().urls
    return {name: httpx.get(url, trust_env=False).content for name, url in urls.items()}


def start(http: httpx.Client, **changes: Any) -> httpx.Response:
    body = {"base_model": BASE_MODEL, "lora_config": LORA, "destination_project_id": "mine", **changes}
    return http.post("/external_weights_upload_start", json=body)


def put(started: Mapping[str, Any], files: Mapping[str, bytes]) -> None:
    assert set(started["urls"]) == {"adapter_config.json", "adapter_model.safetensors"}
    for name, content in files.items():
        assert httpx.put(started["urls"][name], content=content, trust_env=False).status_code == 200


def finish(http: httpx.Client, upload_id: str) -> httpx.Response:
    return http.post("/external_weights_upload_finish", json={"upload_id": upload_id})


def test_what_was_saved_comes_back(
    http: httpx.Client, client: tinker.ServiceClient, trained: tinker.TrainingClient, files: Mapping[str, bytes]
) -> None:
    """Would catch weights that are others after the way out and in, and a finish that makes two checkpoints."""
    started = start(http).json()
    assert started["expires"].endswith("+00:00")
    put(started, files)
    finished = finish(http, started["upload_id"])
    path = finished.json()["tinker_path"]
    assert finish(http, started["upload_id"]).json() == finished.json()
    expected = trained.forward(DATA, "cross_entropy").result().metrics["loss:sum"]
    loaded = client.create_training_client_from_state(path).result()
    assert loaded.forward(DATA, "cross_entropy").result().metrics["loss:sum"] == pytest.approx(expected, abs=1e-4)
    sampler = client.create_sampling_client(model_path=path).result()
    assert len(sampler.compute_logprobs(PROMPT).result()) == PROMPT.length
    [found] = http.post("/checkpoints/search", json={"project_ids": ["mine"]}).json()["checkpoints"]
    assert (found["tinker_path"], found["base_model"], found["checkpoint_type"]) == (path, BASE_MODEL, "training")


@pytest.mark.slow
def test_files_that_are_no_such_adapter_are_refused(http: httpx.Client, files: Mapping[str, bytes]) -> None:
    """Would catch a stranger's file that is taken for weights, or an error with a path of the server's."""
    config = "adapter_config.json"
    cases: list[tuple[dict[str, Any], Mapping[str, bytes], str]] = [
        ({}, {}, "lacks adapter_config.json and adapter_model.safetensors"),
        ({}, {config: files[config]}, "lacks adapter_model.safetensors"),
        ({}, {**files, config: b"{"}, "the upload"),
        ({}, {**files, "adapter_model.safetensors": b"\xff" * 100}, "the upload"),
        ({"lora_config": {**LORA, "rank": 4}}, files, "the upload was started for"),
    ]
    for changes, content, words in cases:
        started = start(http, **changes).json()
        put(started, content)
        refused = finish(http, started["upload_id"])
        assert (refused.status_code, words in refused.json()["detail"]) == (400, True), refused.text
        assert "/uploads/" not in refused.text
        if not content:
            put(started, files)
            assert finish(http, started["upload_id"]).status_code == 200, "it cannot be mended"


def test_an_upload_is_its_tenants_and_bounded(host: Host, http: httpx.Client) -> None:
    """Would catch an upload that another tenant finishes, a forged link, and a disk that is filled."""
    started = start(http).json()
    with httpx.Client(base_url=f"{host.url}/api/v1", headers={"X-API-Key": OTHER_KEY}, trust_env=False) as other:
        assert finish(other, started["upload_id"]).status_code == 404
        opened = [start(other).status_code for _ in range(5)]
    assert opened == [200] * 4 + [400]
    url = started["urls"]["adapter_config.json"]
    for forged in (f"{url}x", url.replace("adapter_config.json", "other"), url.replace("adapter_config", "..%2fx")):
        assert httpx.put(forged, content=b"x", trust_env=False).status_code == 404
    assert httpx.put(url, content=bytes(2**22 + 1), trust_env=False).status_code == 413
    assert start(http, base_model="unknown/model").status_code == 400
    assert start(http, lora_config={"rank": -1}).status_code == 400


def test_checkpoints_are_found(http: httpx.Client, trained: tinker.TrainingClient) -> None:
    """Would catch a filter that is ignored, an order that is not by time, and a page that is given twice."""
    for name in ("s1", "s2", "s3"):
        trained.save_state(name).result()

    def names(**query: Any) -> list[str]:
        found, cursor = [], None
        while True:
            answer = http.post("/checkpoints/search", json={**query, "cursor": cursor}).json()
            found += [one["checkpoint_id"] for one in answer["checkpoints"] if "/s" in one["checkpoint_id"]]
            cursor = answer["next_cursor"]
            if cursor is None:
                return found

    newest = ["weights/s3", "weights/s2", "weights/s1"]
    assert names() == names(limit=1) == names(checkpoint_type="training") == names(base_models=[BASE_MODEL]) == newest
    assert names(base_models=["other"]) == names(checkpoint_type="sampler") == names(user_metadata={"a": "b"}) == []
    assert names(owner={"type": "user", "owner_urns": ["somebody"]}) == []
    for bad in ({"limit": 0}, {"checkpoint_type": "x"}, {"cursor": {"last_created_at": "x"}}):
        assert http.post("/checkpoints/search", json=bad).status_code == 400
