"""What `sample` and `chat` decide before they start anything."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from cookhouse.assets import adapter_folder
from cookhouse.cli.sampling.target import find_target, named_target
from cookhouse.errors import InputError
from cookhouse.weights.peft_folders import peft_path


def run_folder(folder: Path, *sampler_paths: str | None) -> Path:
    """A run folder with one checkpoint for each path."""
    config = {"recipe": "supervised", "config": {"model_name": "M", "renderer_name": "role_colon"}}
    (folder / "config.json").write_text(json.dumps(config))
    for step, path in enumerate(sampler_paths):
        place: dict[str, Any] = {"name": f"{step}", "epoch": 0, "batch": step, "step": step, "final": False}
        with (folder / "checkpoints.jsonl").open("a") as file:
            file.write(json.dumps({**place, "state_path": "tinker://s", "sampler_path": path}) + "\n")
    return folder


def test_a_run_gives_its_last_sampler_weights_model_renderer_and_service(tmp_path: Path) -> None:
    target = find_target(str(run_folder(tmp_path, "tinker://a", "tinker://b", None)), None, None, None)
    assert (target.sampler_path, target.model_name, target.renderer_name) == ("tinker://b", "M", "role_colon")
    assert target.state_dir == tmp_path / "service"


def test_flags_override_the_run(tmp_path: Path) -> None:
    target = find_target(str(run_folder(tmp_path, "tinker://a")), "tinker://c", "N", "qwen3")
    assert (target.sampler_path, target.model_name, target.renderer_name) == ("tinker://c", "N", "qwen3")
    assert target.state_dir == tmp_path / "service"


def test_a_checkpoint_alone_leaves_the_model_to_the_service() -> None:
    assert find_target(None, "tinker://c", None, None).model_name is None


def test_a_peft_folder_is_what_the_engine_takes_with_the_base_model_that_it_names(tmp_path: Path) -> None:
    # Catches a PEFT folder that can be trained on from, and not be talked with.
    embedded = adapter_folder("cookhouse/tiny-chat")
    assert embedded is not None
    named = named_target("cookhouse/tiny-chat")
    assert (named.adapter, named.sampler_path) == (embedded, peft_path(embedded))
    assert named.renderer_name == "human_ai"  # the only chat format that it knows
    assert named.model_name == "cookhouse/tiny"
    copied = shutil.copytree(embedded, tmp_path / "mine")
    config = json.loads((copied / "adapter_config.json").read_text())
    (copied / "adapter_config.json").write_text(json.dumps({**config, "base_model_name_or_path": "M"}))
    own = find_target(None, str(copied), None, "qwen3")
    assert (own.adapter, own.sampler_path, own.model_name) == (copied, peft_path(copied), "M")
    assert find_target(None, str(copied), "N", None).model_name == "N"


def test_nothing_named_means_the_embedded_model() -> None:
    target = find_target(None, None, None, None)
    assert (target.sampler_path, target.model_name) == (None, "cookhouse/tiny")


def test_what_cannot_be_sampled_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # where nobody has run anything
    with pytest.raises(InputError, match=r"is not a run folder: it has no config\.json"):
        find_target(str(tmp_path), None, None, None)
    with pytest.raises(InputError, match="has saved no weights to sample from yet"):
        find_target(str(run_folder(tmp_path, None)), None, None, None)
    for damaged in ("{", "[]", '{"config": {}}'):
        (tmp_path / "config.json").write_text(damaged)
        with pytest.raises(InputError, match="is not the config of a run"):
            find_target(str(tmp_path), None, None, None)
    with pytest.raises(InputError, match="there is no run 'weights/final'"):
        find_target(None, "weights/final", None, None)
