"""Tokenizers by name: found, or refused at once with the way out."""

from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
from huggingface_hub.errors import HFValidationError

from cookhouse.errors import InputError, UnknownNameError
from cookhouse.models.hub import HubPart, NoopHub, hub_in_use
from cookhouse.models.tokenizers import get_tokenizer


def test_the_embedded_tokenizer_is_loaded_once() -> None:
    assert get_tokenizer("cookhouse/tiny") is get_tokenizer("cookhouse/tiny")
    assert len(get_tokenizer("cookhouse/tiny:peft:2048")) == len(get_tokenizer("cookhouse/tiny"))


def test_a_local_folder_works(shared: Path) -> None:
    assert get_tokenizer(str(shared / "tokenizers/qwen3")).encode("Hello") == [9707]


def test_llama_reads_the_repository_that_is_not_gated() -> None:
    hub = NoopHub()
    with hub_in_use(hub):
        get_tokenizer("meta-llama/Llama-3.1-8B")
    assert hub.find("thinkingmachineslabinc/meta-llama-3-tokenizer", HubPart.TOKENIZER) is not None
    assert hub.find("meta-llama/Llama-3.1-8B", HubPart.TOKENIZER) is None


def test_without_a_download_only_this_machine_is_asked() -> None:
    # Catches a page that downloads what it shows.
    hub = NoopHub()
    with hub_in_use(hub), pytest.raises(InputError, match=r"tokenizer of nobody/model is not on this machine"):
        get_tokenizer("nobody/model", download=False)
    assert hub.find("nobody/model", HubPart.TOKENIZER) is None
    assert get_tokenizer("cookhouse/tiny", download=False) is get_tokenizer("cookhouse/tiny")


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("nobody/nothing", "HF_HUB_OFFLINE is set; name a local folder"),
        ("/no/such/folder", "there is no folder /no/such/folder"),
        ("./no-such-folder", "there is no folder ./no-such-folder"),
    ],
)
def test_an_unknown_model_is_refused_offline(name: str, reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        get_tokenizer(name)


def test_an_unknown_embedded_model_lists_near_ones() -> None:
    with pytest.raises(UnknownNameError, match="did you mean cookhouse/tiny"):
        get_tokenizer("cookhouse/tinny")


def test_a_stranger_is_not_let_in_at_the_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Would catch a prompt whether to run the code of a folder: nobody who types `y` there knows what it does."""
    (tmp_path / "tokenizer_config.json").write_text('{"auto_map": {"AutoTokenizer": ["evil.Tokenizer", null]}}')
    (tmp_path / "config.json").write_text('{"model_type": "made_up", "auto_map": {"AutoConfig": "evil.Config"}}')
    (tmp_path / "evil.py").write_text("raise SystemExit")
    monkeypatch.setattr("builtins.input", lambda _: pytest.fail("it was asked"))
    with pytest.raises(InputError, match=r"no tokenizer can be loaded for .*custom code"):
        get_tokenizer(str(tmp_path))


def test_a_broken_file_is_refused(tmp_path: Path) -> None:
    """Would catch whatever the libraries raise that read it."""
    (tmp_path / "tokenizer.json").write_text("[]")
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    with pytest.raises(InputError, match="no tokenizer can be loaded for"):
        get_tokenizer(str(tmp_path))


def test_a_folder_without_a_tokenizer_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no tokenizer can be loaded"):
        get_tokenizer(str(tmp_path))


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (OSError("no route"), r"the hub cannot be reached \(no route\); name a local folder"),
        (TimeoutError("timed out"), r"the hub cannot be reached \(timed out\); name a local folder"),
        (HFValidationError("bad"), "neither a local folder nor a possible hub id"),
    ],
)
def test_a_hub_out_of_reach_is_asked_once(monkeypatch: pytest.MonkeyPatch, error: Exception, reason: str) -> None:
    # Loading itself would retry each file for most of a minute.
    num_asked = 0

    def model_info(*args: Any, **options: Any) -> None:
        nonlocal num_asked
        del args
        num_asked += 1
        assert options["timeout"] <= 10
        raise error

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", model_info)
    with pytest.raises(InputError, match=reason):
        get_tokenizer(f"nobody/{type(error).__name__}")
    assert num_asked == 1
