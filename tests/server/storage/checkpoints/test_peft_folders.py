"""Adapters in PEFT folders, as checkpoints that a server may load."""

import json
import shutil
from pathlib import Path

import pytest

from cookhouse.assets import ADAPTER_FOLDERS
from cookhouse.errors import InputError
from cookhouse.server.storage.checkpoints.readonly import ReadOnlyCheckpoints
from cookhouse.weights.peft_folders import is_peft_folder, peft_path


def arithmetic() -> Path:
    return ADAPTER_FOLDERS["cookhouse/tiny-arithmetic"]


@pytest.mark.slow
def test_an_adapter_is_found_under_the_path_that_its_files_give(tmp_path: Path) -> None:
    # Catches a path that a client and its server make differently, and a folder that is imported at every start.
    path = peft_path(arithmetic())
    copied = shutil.copytree(arithmetic(), tmp_path / "copy")
    assert peft_path(copied) == path, "what it is called does not matter"
    found = ReadOnlyCheckpoints((), [copied], imported=tmp_path / "peft").find(path)
    assert found is not None
    assert (found.row.base_model, found.row.lora_spec.rank, found.row.path) == ("cookhouse/tiny", 4, path)
    written = [file.stat().st_mtime_ns for file in found.folder.iterdir()]
    again = ReadOnlyCheckpoints((), [arithmetic()], imported=tmp_path / "peft").find(path)
    assert again is not None
    assert [file.stat().st_mtime_ns for file in again.folder.iterdir()] == written
    assert again.row.sha256 == found.row.sha256
    file = next(file for file in again.folder.iterdir() if file.suffix == ".safetensors")
    content = file.read_bytes()
    file.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    whole = ReadOnlyCheckpoints((), [copied], imported=tmp_path / "peft").find(path)
    assert whole is not None
    assert whole.row.sha256 == found.row.sha256, "a damaged import is loaded in silence"
    assert file.read_bytes() == content


def test_another_adapter_has_another_path(tmp_path: Path) -> None:
    copied = shutil.copytree(arithmetic(), tmp_path / "copy")
    config = json.loads((copied / "adapter_config.json").read_text())
    (copied / "adapter_config.json").write_text(json.dumps({**config, "lora_alpha": 16}))
    assert peft_path(copied) != peft_path(arithmetic())


def test_what_is_no_adapter_is_refused(tmp_path: Path) -> None:
    (tmp_path / "adapter_config.json").write_text("{}")
    assert is_peft_folder(tmp_path)
    with pytest.raises(InputError, match="no PEFT folder with its weights in safetensors"):
        ReadOnlyCheckpoints((), [tmp_path], imported=tmp_path / "peft")
    assert not is_peft_folder(Path("cookhouse/tiny"))
    assert not is_peft_folder(Path("no\0path"))


@pytest.mark.slow
def test_embedded_adapters_are_there_without_being_named(tmp_path: Path) -> None:
    # Catches a served engine at which the recipes that learn from them cannot run.
    found = ReadOnlyCheckpoints(imported=tmp_path / "peft").find(peft_path(arithmetic()))
    assert found is not None
    assert found.row.base_model == "cookhouse/tiny"
    assert ReadOnlyCheckpoints(imported=tmp_path / "peft").find("tinker://peft-none:train:0/weights/adapter") is None
