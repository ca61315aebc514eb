"""What `sample` and `chat` decide before they start anything."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from cookhouse.assets import ADAPTER_FOLDERS
from cookhouse.errors import InputError
from cookhouse.service.sampling.target import find_target
from cookhouse.weights.peft_folders import peft_path


def run_folder(folder: Path, *sampler_paths: str | None) -> Path:
    """A run directory with one checkpoint for each path."""
    config = {"recipe": "supervised", "config": {"model_name": "M", "renderer_name": "role_colon"}}
    (folder / "config.json").write_text(json.dumps(config))
    for step, path in enumerate(sampler_paths):
        run_line(folder, path, step)
    return folder


def run_line(folder: Path, sampler_path: str | None, step: int = 0) -> None:
    place: dict[str, Any] = {"name": f"{step}", "epoch": 0, "batch": step, "step": step, "final": False}
    with (folder / "checkpoints.jsonl").open("a") as file:
        file.write(json.dumps({**place, "state_path": "tinker://s", "sampler_path": sampler_path}) + "\n")


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where nobody has run anything, and no service is configured."""
    monkeypatch.chdir(tmp_path)
    for name in ("TINKER_BASE_URL", "TINKER_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def test_a_run_gives_its_last_sampler_weights_model_renderer_and_service(tmp_path: Path) -> None:
    target = find_target(str(run_folder(tmp_path, "tinker://a", "tinker://b", None)))
    assert (target.sampler_path, target.model_name, target.renderer_name) == ("tinker://b", "M", "role_colon")
    assert target.state_dir == tmp_path / "service"


def test_a_path_is_of_the_run_here_that_saved_it(tmp_path: Path) -> None:
    (tmp_path / "runs/first").mkdir(parents=True)
    run_folder(tmp_path / "runs/first", "tinker://a", "tinker://b")
    target = find_target("tinker://a", "M", "qwen3")
    assert (target.sampler_path, target.model_name, target.renderer_name) == ("tinker://a", "M", "qwen3")
    assert target.state_dir == Path("runs/first/service")


def test_a_path_of_nobody_leaves_the_model_to_the_service() -> None:
    assert find_target("tinker://c").model_name is None
    assert find_target("tinker://c", "N").model_name == "N"


def test_weights_of_another_base_model_are_refused_before_anything_is_loaded(tmp_path: Path) -> None:
    """Catches minutes of loading a model that the weights do not fit."""
    run = str(run_folder(tmp_path, "tinker://a"))
    assert find_target(run, "M:peft:262144").sampler_path == "tinker://a"  # the same, with its rented context
    with pytest.raises(InputError, match=f"{run} was trained on M, and its weights fit no other.* leave out --model N"):
        find_target(run, "N")
    with pytest.raises(InputError, match="org/a is a base model itself, and --model N is another"):
        find_target("org/a", "N")


def test_a_peft_folder_is_what_the_engine_takes_with_the_base_model_that_it_names(tmp_path: Path) -> None:
    # Catches a PEFT folder that can be trained on from, and not be talked with.
    embedded = ADAPTER_FOLDERS["cookhouse/tiny-chat"]
    named = find_target("cookhouse/tiny-chat")
    assert (named.adapter, named.sampler_path) == (embedded, peft_path(embedded))
    assert named.renderer_name == "human_ai"  # the only chat format that it knows
    assert (named.model_name, named.note) == ("cookhouse/tiny", None)
    copied = shutil.copytree(embedded, tmp_path / "mine")
    config = json.loads((copied / "adapter_config.json").read_text())
    (copied / "adapter_config.json").write_text(json.dumps({**config, "base_model_name_or_path": "M"}))
    own = find_target(str(copied), None, "qwen3")
    assert (own.adapter, own.sampler_path, own.model_name) == (copied, peft_path(copied), "M")
    moved = find_target(str(copied), "N")  # it may name a path of before
    assert (moved.model_name, moved.note) == ("N", f"{copied} says that it was trained on M; it is loaded on N")


@pytest.mark.parametrize(("model", "asked"), [(None, "cookhouse/tiny"), ("org/a", "org/a"), ("one-word", "one-word")])
def test_nothing_named_means_the_base_model(model: str | None, asked: str) -> None:
    target = find_target(None, model)
    assert (target.sampler_path, target.model_name, target.label) == (None, asked, asked)


def test_what_cannot_be_sampled_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"is a folder without weights in it"):
        find_target(str(tmp_path))
    run_folder(tmp_path, None)
    for damaged in ("{", "[]", '{"config": {}}'):
        (tmp_path / "config.json").write_text(damaged)
        (tmp_path / "checkpoints.jsonl").unlink(missing_ok=True)
        run_line(tmp_path, "tinker://a")
        with pytest.raises(InputError, match="is not the config of a run"):
            find_target(str(tmp_path))
    (tmp_path / "config.json").unlink()
    with pytest.raises(InputError, match=r"is not a run directory: it has no config\.json"):
        find_target(str(tmp_path))
    with pytest.raises(InputError, match="unknown weights 'runs/weights/final'"):
        find_target("runs/weights/final")
