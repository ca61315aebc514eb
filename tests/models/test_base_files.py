"""Weights that have changed under the same name are told apart, cheaply, and by what a model is read from."""

import json
from pathlib import Path

import pytest

from cookhouse.models import base_files
from cookhouse.models.base_files import changes_between, files_in, files_of_model


@pytest.fixture
def sharded(tmp_path: Path) -> Path:
    for name in "abc":
        (tmp_path / f"{name}.safetensors").write_bytes(name.encode() * 50_000)
    index = {"weight_map": {"first": "a.safetensors", "second": "b.safetensors"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    return tmp_path


def changed_at(file: Path, place: int) -> None:
    data = bytearray(file.read_bytes())
    data[place] ^= 1
    file.write_bytes(data)


@pytest.mark.parametrize("most", [base_files.MAX_WHOLE_BYTES, 1_000])
@pytest.mark.parametrize("place", [0, 25_000, -1])
def test_one_byte_is_seen(sharded: Path, monkeypatch: pytest.MonkeyPatch, most: int, place: int) -> None:
    """Also in a large file, of which places are read: here they are closer than they are long."""
    monkeypatch.setattr(base_files, "MAX_WHOLE_BYTES", most)
    before = files_in(sharded)
    assert changes_between(before, files_in(sharded)) is None
    changed_at(sharded / "b.safetensors", place)
    assert changes_between(before, files_in(sharded)) == "b.safetensors differs"


def test_other_weights_of_the_same_shapes_in_a_large_file_are_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Catches a fingerprint of sizes and headers alone: a model that was trained further has the same."""
    monkeypatch.setattr(base_files, "MAX_WHOLE_BYTES", 2**20)
    monkeypatch.setattr(base_files, "_NUM_PLACES", 16)
    (tmp_path / "model.safetensors").write_bytes(b"header" + b"x" * 3 * 2**20)
    before = files_in(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"header" + b"x" * 2**20 + b"y" * 2 * 2**20)
    assert changes_between(before, files_in(tmp_path)) == "model.safetensors differs"


def test_files_that_no_model_is_read_from_do_not_count(sharded: Path) -> None:
    before = files_in(sharded)
    assert set(before) == {"a.safetensors", "b.safetensors"}
    changed_at(sharded / "c.safetensors", 0)
    (sharded / "README.md").write_text("more")
    assert files_in(sharded) == before
    (sharded / "a.safetensors").rename(sharded / "model.safetensors")
    assert changes_between(before, files_in(sharded)) == (
        "each of 2 files such as a.safetensors is gone, model.safetensors is new"
    )


def test_a_model_that_is_not_here_has_none(tmp_path: Path) -> None:
    assert files_of_model(str(tmp_path / "nowhere")) == {}
    assert set(files_of_model("cookhouse/tiny")) == {"model.safetensors"}
    assert changes_between({}, files_of_model("cookhouse/tiny")) is None
