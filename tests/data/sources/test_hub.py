"""Data sets in the hub's own form: splits, configurations, forms of files, and what is refused."""

import logging
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.data.hub import write_set

from cookhouse.data import HubSource, HubSplit, data_source, fingerprint_of, num_rows, read_conversations
from cookhouse.data.sources import hub
from cookhouse.data.sources.hub import HubDatasetStore
from cookhouse.errors import InputError, UnknownNameError

MESSAGES = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]
ROWS = [{"messages": MESSAGES, "prompt_id": str(number)} for number in range(5)]


@pytest.fixture(params=["parquet", "jsonl", "jsonl.gz"])
def folder(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    sets = {"main": {"train": ROWS, "test": ROWS[:2]}, "other": {"train": ROWS[:1]}}
    return write_set(tmp_path / "set", sets, form=request.param)


def test_a_folder_is_read_by_split_and_configuration(folder: Path) -> None:
    assert len(read_conversations(f"{folder}#main/train")) == 5
    assert len(read_conversations(f"{folder}#main/test")) == 2
    assert len(read_conversations(f"{folder}#other/train")) == 1
    (first, *_) = read_conversations(f"{folder}#main/train")
    assert [message["content"] for message in first.messages] == ["q", "a"]
    assert first.extra == {"prompt_id": "0"}


def test_an_unknown_split_or_configuration_is_named(folder: Path) -> None:
    with pytest.raises(UnknownNameError, match=r"unknown split of .*set 'tests'; did you mean test\?"):
        read_conversations(f"{folder}#main/tests")
    with pytest.raises(InputError, match="cannot be read as a data set: BuilderConfig 'none' not found"):
        read_conversations(f"{folder}#none/train")


def test_a_folder_that_changes_is_read_anew(folder: Path) -> None:
    # Catches rows that the library prepared before, and that are trained on under the name of others.
    name = f"{folder}#main/train"
    before = fingerprint_of(data_source(name))
    changed = [{**row, "messages": [MESSAGES[0], {**MESSAGES[1], "content": "b"}]} for row in ROWS]
    form = next(path.name.partition(".")[2] for path in (folder / "main").iterdir())
    write_set(folder, {"main": {"train": changed}}, form=form)
    (first, *_) = read_conversations(name)
    assert first.messages[1]["content"] == "b"
    assert before.changes_to(fingerprint_of(data_source(name))) is not None


def test_a_folder_without_a_card_is_read_by_the_names_of_its_files(tmp_path: Path) -> None:
    write_set(tmp_path / "set", {"data": {"train-00000-of-00001": ROWS, "test-00000-of-00001": ROWS[:1]}})
    (tmp_path / "set" / "README.md").unlink()
    assert (len(read_conversations(str(tmp_path / "set"))), len(read_conversations(f"{tmp_path}/set#test"))) == (5, 1)


@pytest.mark.parametrize(
    ("given", "split"),
    [
        ("owner/name", HubSplit(name="owner/name")),
        ("owner/name#test", HubSplit(name="owner/name", split="test")),
        ("owner/name#main/test", HubSplit(name="owner/name", split="test", configs=("main",))),
    ],
)
def test_a_hub_id_is_told_from_a_path(given: str, split: HubSplit) -> None:
    assert data_source(given) == HubSource(split=split)
    for path in ("owner/name.jsonl", "a/b/c", "/owner/name", "owner/rows.parquet"):
        assert not isinstance(data_source(path), HubSource)


def test_a_set_without_network_is_refused_with_where_it_was_looked_for() -> None:
    import datasets

    with pytest.raises(InputError) as caught:
        read_conversations("nobody/nothing")
    assert str(caught.value).startswith(
        f"nobody/nothing is not on disk (looked in {datasets.config.HF_DATASETS_CACHE}) and cannot be read from the "
        "hub: "
    )


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(InputError, match=r"nobody/nothing needs the library datasets: .* install .*\[data\]"):
        read_conversations("nobody/nothing")


def test_a_mirror_holds_sets_by_their_ids(tmp_path: Path) -> None:
    write_set(tmp_path / "owner" / "name", {"main": {"train": ROWS}})
    store = HubDatasetStore(mirror=tmp_path)
    assert num_rows(store.open(HubSplit(name="owner/name"))) == 5
    with pytest.raises(InputError, match=r"there is no data set owner/other in .*; put it there"):
        store.open(HubSplit(name="owner/other"))
    for name in ("../secret", "owner/..", "/etc/passwd", "name"):
        with pytest.raises(InputError, match="is no id of a data set; it must be owner/name"):
            store.open(HubSplit(name=name))


class Remote:
    """A builder of the library whose files are elsewhere, here at `memory://`."""

    def __init__(self, cache_dir: Path, files: list[str]) -> None:
        self.cache_dir = str(cache_dir)
        self.config = type("Config", (), {"data_files": {"train": files}})
        self.info = None
        self.was_downloaded = False

    def download_and_prepare(self) -> None:
        self.was_downloaded = True
        raise OSError("no network")


@pytest.mark.parametrize("is_large", [True, False])
def test_a_set_that_is_not_on_disk_is_downloaded_or_streamed_once_its_size_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, is_large: bool
) -> None:
    import datasets
    import fsspec

    write_set(tmp_path / "set", {"main": {"train": ROWS}})
    memory = fsspec.filesystem("memory")
    memory.pipe("/owner/train.parquet", (tmp_path / "set" / "main" / "train.parquet").read_bytes())
    builder = Remote(tmp_path / "cache", ["memory://owner/train.parquet"])
    monkeypatch.setattr(datasets, "load_dataset_builder", lambda *_: builder)
    monkeypatch.setattr(hub, "MAX_DOWNLOAD_BYTES", 0 if is_large else 2**40)
    source = data_source("owner/name")
    with caplog.at_level(logging.WARNING):
        if is_large:
            assert len(read_conversations(source)) == 5
            assert "owner/name has 0.0 MB: it is streamed, and not kept on disk" in caplog.text
        else:
            with pytest.raises(InputError, match="cannot be read from the hub: no network"):
                read_conversations(source)
            assert f"owner/name is not on disk: downloading 0.0 MB to {tmp_path}/cache" in caplog.text
    assert builder.was_downloaded != is_large


def test_a_hub_out_of_reach_is_asked_once(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """Catches half a minute of retries, each said twice, before one good error."""
    from datasets import config
    from huggingface_hub import HfApi, constants

    asked: list[str] = []

    def refuse(_: HfApi, name: str, **__: Any) -> None:
        asked.append(name)
        raise OSError("no route")

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(config, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(HfApi, "dataset_info", refuse)
    with pytest.raises(InputError, match="nobody/nothing is not on disk"):
        HubDatasetStore().open(HubSplit(name="nobody/nothing"))
    assert asked == ["nobody/nothing"]
    assert caplog.text.count("no route") == 1
    assert not constants.HF_HUB_OFFLINE
    assert not config.HF_HUB_OFFLINE
