"""Checksums of weights: what they are over, and what they give away."""

import hashlib
import os
from pathlib import Path

import pytest
from tests.registry.kit import new_model, weights

from cookhouse.errors import InputError
from cookhouse.registry import (
    Artifact,
    ArtifactState,
    NewModel,
    NoopRegistry,
    artifact_state,
    check_artifact,
    folder_sha256,
    read_artifact,
)


def test_a_checksum_is_over_names_and_contents(tmp_path: Path) -> None:
    lines = "".join(
        f"{hashlib.sha256(content).hexdigest()}  {name}\n"
        for name, content in (("adapter.json", b"{}"), ("deep/adapter.safetensors", b"weights"))
    )
    assert folder_sha256(weights(tmp_path / "a")) == hashlib.sha256(lines.encode()).hexdigest()


def test_files_are_in_the_order_of_their_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Catches a checksum that hangs on the order in which a file system lists its files.
    folder = weights(tmp_path / "a")
    (folder / "another.json").touch()
    (folder / "a").mkdir()
    (folder / "a" / "z").touch()
    names = ["a/z", "adapter.json", "another.json", "deep/adapter.safetensors"]
    lines = "".join(f"{hashlib.sha256((folder / name).read_bytes()).hexdigest()}  {name}\n" for name in names)
    expected = hashlib.sha256(lines.encode()).hexdigest()
    listed = list(os.walk(folder))
    assert folder_sha256(folder) == expected
    backwards = [(here, folders, sorted(names, reverse=True)) for here, folders, names in reversed(listed)]
    monkeypatch.setattr(os, "walk", lambda _: backwards)
    assert folder_sha256(folder) == expected


@pytest.mark.parametrize(
    "change",
    [
        lambda folder: (folder / "deep" / "adapter.safetensors").write_text("weighty"),
        lambda folder: (folder / "adapter.json").rename(folder / "other.json"),
        lambda folder: (folder / "adapter.json").unlink(),
        lambda folder: (folder / "more.json").touch(),
    ],
    ids=["content", "name", "one less", "one more"],
)
def test_any_change_of_the_files_is_seen(tmp_path: Path, change: object) -> None:
    registry = NoopRegistry()
    version = registry.register(new_model(tmp_path / "a"))
    check_artifact(version, version.artifact)
    assert callable(change)
    change(tmp_path / "a")
    assert artifact_state(version.artifact) is ArtifactState.CHANGED
    with pytest.raises(InputError, match=r"the weights of sums@1 have changed .*; restore them, or register"):
        check_artifact(version, version.artifact)


def test_weights_that_are_gone_are_named(tmp_path: Path) -> None:
    version = NoopRegistry().register(new_model(tmp_path / "a"))
    (tmp_path / "a").rename(tmp_path / "b")
    assert artifact_state(version.artifact) is ArtifactState.GONE
    with pytest.raises(InputError, match=r"the weights of sums@1 are gone: there are no files in .*/a; restore it, or"):
        check_artifact(version, version.artifact)
    (tmp_path / "a").mkdir()
    assert artifact_state(version.artifact) is ArtifactState.GONE


def test_weights_elsewhere_are_not_checked() -> None:
    assert artifact_state(Artifact(path="tinker://run/weights/final")) is ArtifactState.ELSEWHERE


def test_weights_elsewhere_keep_the_checksum_that_was_told() -> None:
    """Would catch a version that a server's weights cannot be registered as, or are registered as twice."""
    registry = NoopRegistry()
    new = NewModel(name="sums", base_model="m", artifact=read_artifact("tinker://run/weights/final", None, "ab" * 32))
    version = registry.register(new)
    assert version.artifact.sha256 == "ab" * 32
    assert artifact_state(version.artifact) is ArtifactState.ELSEWHERE
    check_artifact(version, version.artifact)


def test_a_folder_is_read_to_its_end_whatever_lies_in_it(tmp_path: Path) -> None:
    """Would catch a checksum that never comes: links in a circle, and what has no end."""
    folder = weights(tmp_path / "a")
    plain = folder_sha256(folder)
    (folder / "deep" / "up").symlink_to(folder, target_is_directory=True)
    os.mkfifo(folder / "pipe")
    assert folder_sha256(folder) == plain


def test_what_holds_no_weights_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="empty holds no files; name a folder of weights"):
        folder_sha256(tmp_path / "empty")
    with pytest.raises(InputError, match="file is no folder of weights"):
        folder_sha256(tmp_path / "file")
