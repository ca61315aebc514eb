"""Every hub client of ours keeps the contract; nothing is downloaded unsaid, and a hub out of reach is told at once."""

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.models.hub.fake_hub import FakeHub, serve_hub

from cookhouse.assets import TINY_MODEL, resolve_model
from cookhouse.errors import InputError
from cookhouse.models.catalog import context_tokens
from cookhouse.models.hub import HubClient, HubPart, HuggingFaceHub, NoopHub, current_hub, hub_in_use
from cookhouse.models.tokenizers import get_tokenizer
from cookhouse.testing import HubContract

MODEL = "someone/some-model"


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    """A hub with one model, which the process may reach."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setenv("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    with serve_hub() as hub:
        files = {path.name: path.read_bytes() for path in Path(resolve_model(TINY_MODEL)).iterdir()}
        files["pytorch_model.bin"] = b"never read"
        files["onnx/model.onnx"] = b"never read"
        hub.models[MODEL] = files
        yield hub


def fetched(hub: FakeHub) -> list[str]:
    """Files that were downloaded, not only asked about."""
    return [request for request in hub.asked if request.startswith("GET /") and "/resolve/" in request]


class TestHuggingFace(HubContract):
    @pytest.fixture(autouse=True)
    def _hub(self, hub: FakeHub) -> None:
        self.url = hub.url

    def make(self) -> HubClient:
        return HuggingFaceHub(endpoint=self.url, token="hf_test", cache_dir=self.folder())


class TestNoop(HubContract):
    def make(self) -> HubClient:
        return NoopHub()


def test_the_size_is_said_before_a_download_begins(hub: FakeHub, tmp_path: Path) -> None:
    said: list[str] = []

    def say(text: str) -> None:
        said.append(text)
        assert not fetched(hub), "a file was asked for before that"

    client = HuggingFaceHub(endpoint=hub.url, cache_dir=tmp_path, say=say)
    folder = client.download(MODEL, HubPart.TOKENIZER)
    assert said == [f"downloading the tokenizer of {MODEL}: 5 files, 0.1 MB, to {tmp_path}"]
    assert not (folder / "model.safetensors").exists()
    hub.asked.clear()
    folder = client.download(MODEL, HubPart.MODEL)
    assert said[1:] == [f"downloading the model of {MODEL}: 1 files, 6.1 MB, to {tmp_path}"]
    assert sorted(path.name for path in folder.iterdir()) == [
        "chat_template.jinja",
        "config.json",
        "generation_config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
    ]
    hub.asked.clear()
    client.download(MODEL, HubPart.MODEL)
    assert hub.asked == [], "what is on this machine is asked of nobody"


def test_a_download_that_does_not_fit_is_refused(hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=1_000_000))
    with pytest.raises(InputError, match=f"{MODEL} takes 6.2 MB, and {tmp_path} has room for 1.0 MB"):
        HuggingFaceHub(endpoint=hub.url, cache_dir=tmp_path).download(MODEL, HubPart.MODEL)
    assert not fetched(hub)


def test_offline_names_the_folder_where_it_looked(tmp_path: Path) -> None:
    client = HuggingFaceHub(cache_dir=tmp_path)
    with pytest.raises(InputError, match=f"its model is not in {tmp_path}, and HF_HUB_OFFLINE is set"):
        client.download(MODEL, HubPart.MODEL)
    with pytest.raises(InputError, match="cannot be uploaded as someone/x: HF_HUB_OFFLINE is set"):
        client.upload(tmp_path, "someone/x")


def test_a_model_that_is_not_there_and_one_that_may_not_be_written(hub: FakeHub, tmp_path: Path) -> None:
    client = HuggingFaceHub(endpoint=hub.url, token="hf_test", cache_dir=tmp_path)
    with pytest.raises(InputError, match="the hub has no model 'someone/other' that you may read"):
        client.download("someone/other", HubPart.MODEL)
    hub.is_writable = False
    with pytest.raises(InputError, match=r"you may not write to someone/new: .*; set HF_TOKEN"):
        client.upload(tmp_path, "someone/new")


def test_a_model_without_readable_weights_is_refused(hub: FakeHub, tmp_path: Path) -> None:
    del hub.models[MODEL]["model.safetensors"]
    client = HuggingFaceHub(endpoint=hub.url, cache_dir=tmp_path)
    with pytest.raises(InputError, match="holds no whole model in a format that is read here"):
        client.download(MODEL, HubPart.MODEL)


def test_a_cache_that_misses_a_shard_is_not_whole(tmp_path: Path) -> None:
    """Catches a download that was cut short, by a program that leaves no list of files."""
    snapshot = tmp_path / "models--someone--some-model/snapshots/0f"
    snapshot.mkdir(parents=True)
    (snapshot.parents[1] / "refs").mkdir()
    (snapshot.parents[1] / "refs/main").write_text("0f")
    for name in ("config.json", "tokenizer.json", "one.safetensors"):
        (snapshot / name).write_text("{}")
    index = '{"weight_map": {"a": "one.safetensors", "b": "two.safetensors"}}'
    (snapshot / "model.safetensors.index.json").write_text(index)
    client = HuggingFaceHub(cache_dir=tmp_path)
    assert client.find(MODEL, HubPart.MODEL) is None
    assert client.find(MODEL, HubPart.TOKENIZER) == snapshot
    (snapshot / "two.safetensors").write_text("{}")
    assert client.find(MODEL, HubPart.MODEL) == snapshot


def test_a_made_up_model_says_so() -> None:
    folder = NoopHub().download("Qwen/Qwen3-8B", HubPart.MODEL)
    assert "tags: [synthetic]" in (folder / "README.md").read_text()


def test_tokenizers_and_configs_come_from_the_hub_in_use() -> None:
    noop = NoopHub()
    with pytest.raises(InputError, match="HF_HUB_OFFLINE"):
        get_tokenizer("someone/another")
    assert context_tokens("someone/another") is None
    with hub_in_use(noop):
        assert current_hub() is noop
        assert get_tokenizer("someone/another").encode("a b") == get_tokenizer(TINY_MODEL).encode("a b")
        assert context_tokens("someone/another") == context_tokens(TINY_MODEL)
    assert isinstance(current_hub(), HuggingFaceHub)
