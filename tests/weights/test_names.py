"""How weights are named: catches a name that means something else in one place than in another."""

import json
from pathlib import Path

import pytest

from cookhouse.errors import InputError
from cookhouse.registry import Artifact, NewModel, NoopRegistry
from cookhouse.weights.names import names_weights, run_that_saved, weights_path


def run_folder(folder: Path, *saved: tuple[str | None, str | None]) -> Path:
    """A run folder with a checkpoint for each pair of state and sampler path."""
    folder.mkdir(parents=True)
    place = {"name": "n", "epoch": 0, "batch": 0, "step": 0, "final": False}
    lines = [json.dumps({**place, "state_path": state, "sampler_path": sampler}) + "\n" for state, sampler in saved]
    (folder / "checkpoints.jsonl").write_text("".join(lines))
    return folder


def test_a_path_means_itself() -> None:
    assert names_weights("tinker://r/weights/n")
    assert weights_path("tinker://r/weights/n", purpose="training") == "tinker://r/weights/n"


def test_a_run_means_its_last_checkpoint_that_serves(tmp_path: Path) -> None:
    name = str(
        run_folder(tmp_path / "run", ("tinker://s1", "tinker://w1"), ("tinker://s2", None), (None, "tinker://w3"))
    )
    assert names_weights(name)
    assert weights_path(name, purpose="sampling") == "tinker://w3"
    assert weights_path(name, purpose="training") == "tinker://w3"
    other = str(run_folder(tmp_path / "other", ("tinker://s1", "tinker://w1"), ("tinker://s2", None)))
    assert weights_path(other, purpose="sampling") == "tinker://w1"
    assert weights_path(other, purpose="training") == "tinker://s2"


def test_a_registered_model_means_its_weights(tmp_path: Path) -> None:
    """Would catch weights of the wrong purpose, or a folder of the name that is passed over."""
    registry = NoopRegistry()
    state, sampler = Artifact(path="tinker://r/weights/n"), Artifact(path="tinker://r/sampler_weights/n")
    run = run_folder(tmp_path / "run", ("tinker://s", None))
    registry.register(NewModel(name="both", base_model="m", artifact=state, sampler=sampler, run_folder=str(run)))
    registry.register(NewModel(name="one", base_model="m", artifact=state))
    assert names_weights("both@1")
    assert weights_path("both@1", purpose="training", registry=registry) == state.path
    assert weights_path("both@experiment", purpose="sampling", registry=registry) == sampler.path
    assert weights_path("one@1", purpose="sampling", registry=registry) == state.path
    assert run_that_saved("both@1", among=(), registry=registry) == run
    assert run_that_saved("one@1", among=(), registry=registry) is None
    with pytest.raises(InputError, match=r"'both@1' names no weights; .* or a registered model as NAME@VERSION"):
        weights_path("both@1", purpose="training")
    folder = str(run_folder(tmp_path / "both@1", ("tinker://own", None)))
    assert weights_path(folder, purpose="training", registry=registry) == "tinker://own"


def test_what_names_no_weights_is_refused_with_the_ways(tmp_path: Path) -> None:
    assert not names_weights("Qwen/Qwen3-8B")
    with pytest.raises(
        InputError, match=r"'weights' names no weights; give a tinker:// path, the folder of a run that"
    ):
        weights_path("weights", purpose="training")
    with pytest.raises(InputError, match="has saved no checkpoint yet"):
        weights_path(str(run_folder(tmp_path / "run")), purpose="training")
    with pytest.raises(InputError, match="has saved no weights to sample from yet"):
        weights_path(str(run_folder(tmp_path / "state", ("tinker://s", None))), purpose="sampling")


def test_the_run_that_saved_a_path_is_found_beside_others(tmp_path: Path) -> None:
    first = run_folder(tmp_path / "runs" / "first", ("tinker://s1", "tinker://w1"))
    run_folder(tmp_path / "runs" / "second", ("tinker://s2", None))
    (tmp_path / "runs" / "damaged").mkdir()
    (tmp_path / "runs" / "damaged" / "checkpoints.jsonl").write_text("{\n")
    among = (tmp_path / "nothing", tmp_path / "runs")
    assert run_that_saved("tinker://w1", among=among) == first
    assert run_that_saved("tinker://w9", among=among) is None
    assert run_that_saved(str(first), among=()) == first
    assert run_that_saved("cookhouse/tiny", among=among) is None
