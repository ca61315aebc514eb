"""How weights are named: catches a name that means something else in one place than in another."""

import json
from pathlib import Path

import pytest

from cookhouse.errors import InputError
from cookhouse.registry import Artifact, NewModel, NoopRegistry
from cookhouse.weights.names import BaseModelWeights, RegisteredWeights, find_weights, is_no_path_here


def run_folder(folder: Path, *saved: tuple[str | None, str | None]) -> Path:
    """A run directory with a checkpoint for each pair of state and sampler path."""
    folder.mkdir(parents=True)
    place = {"name": "n", "epoch": 0, "batch": 0, "step": 0, "final": False}
    lines = [json.dumps({**place, "state_path": state, "sampler_path": sampler}) + "\n" for state, sampler in saved]
    (folder / "checkpoints.jsonl").write_text("".join(lines))
    return folder


def test_a_path_means_itself() -> None:
    assert not isinstance(find_weights("tinker://r/weights/n"), BaseModelWeights)
    assert find_weights("tinker://r/weights/n").path("training") == "tinker://r/weights/n"


def test_a_run_means_its_last_checkpoint_that_serves(tmp_path: Path) -> None:
    name = str(
        run_folder(tmp_path / "run", ("tinker://s1", "tinker://w1"), ("tinker://s2", None), (None, "tinker://w3"))
    )
    assert not isinstance(find_weights(name), BaseModelWeights)
    assert find_weights(name).path("sampling") == "tinker://w3"
    assert find_weights(name).path("training") == "tinker://w3"
    other = str(run_folder(tmp_path / "other", ("tinker://s1", "tinker://w1"), ("tinker://s2", None)))
    assert find_weights(other).path("sampling") == "tinker://w1"
    assert find_weights(other).path("training") == "tinker://s2"


def test_a_registered_model_means_its_weights(tmp_path: Path) -> None:
    """Would catch weights of the wrong purpose, or a folder of the name that is passed over."""
    registry = NoopRegistry()
    state, sampler = Artifact(path="tinker://r/weights/n"), Artifact(path="tinker://r/sampler_weights/n")
    run = run_folder(tmp_path / "run", ("tinker://s", None))
    registry.register(NewModel(name="both", base_model="m", artifact=state, sampler=sampler, run_folder=str(run)))
    registry.register(NewModel(name="one", base_model="m", artifact=state))
    assert not isinstance(find_weights("both@1"), BaseModelWeights)
    assert find_weights("both@1", registry).path("training") == state.path
    assert find_weights("both@experiment", registry).path("sampling") == sampler.path
    assert find_weights("one@1", registry).path("sampling") == state.path
    assert find_weights("both@1", registry).saved_by(()) == run
    assert find_weights("one@1", registry).saved_by(()) is None
    with pytest.raises(InputError, match=r"'both@1' names no weights; .* or a registered model as NAME@VERSION"):
        find_weights("both@1").path("training")
    folder = str(run_folder(tmp_path / "both@1", ("tinker://own", None)))
    assert find_weights(folder, registry).path("training") == "tinker://own"


def test_a_folder_is_itself_whatever_it_is_called(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Would catch a folder that is one thing where weights are loaded, and another where they are exported."""
    monkeypatch.chdir(tmp_path)
    assert isinstance(find_weights("mine@1"), RegisteredWeights)
    (tmp_path / "mine@1").mkdir()
    assert isinstance(find_weights("mine@1"), BaseModelWeights)
    assert is_no_path_here("mine@1")


def test_what_names_no_weights_is_refused_with_the_ways(tmp_path: Path) -> None:
    assert isinstance(find_weights("Qwen/Qwen3-8B"), BaseModelWeights)
    with pytest.raises(
        InputError, match=r"'weights' names no weights; give a tinker:// path, the folder of a run that"
    ):
        find_weights("weights").path("training")
    with pytest.raises(InputError, match="has saved no checkpoint yet"):
        find_weights(str(run_folder(tmp_path / "run"))).path("training")


def test_an_interrupted_run_is_sampled_from_its_state(tmp_path: Path) -> None:
    """Would catch weights that one has to resume a run for, and a state in place of weights saved to sample from."""
    assert find_weights(str(run_folder(tmp_path / "run", ("tinker://s", None)))).path("sampling") == "tinker://s"
    saved = ("tinker://s1", "tinker://w1"), ("tinker://s2", None)
    assert find_weights(str(run_folder(tmp_path / "older", *saved))).path("sampling") == "tinker://w1"


def test_a_sweep_without_a_checkpoint_names_its_runs(tmp_path: Path) -> None:
    """Would catch advice to wait for a sweep that has finished."""
    sweep = run_folder(tmp_path / "sweep")
    first = run_folder(sweep / "1-learning_rate=0.1", ("tinker://s", "tinker://w"))
    with pytest.raises(InputError, match=f"has no checkpoint of its own; name one of its runs: {first}$"):
        find_weights(str(sweep)).path("sampling")


def test_the_run_that_saved_a_path_is_found_beside_others(tmp_path: Path) -> None:
    first = run_folder(tmp_path / "runs" / "first", ("tinker://s1", "tinker://w1"))
    run_folder(tmp_path / "runs" / "second", ("tinker://s2", None))
    (tmp_path / "runs" / "damaged").mkdir()
    (tmp_path / "runs" / "damaged" / "checkpoints.jsonl").write_text("{\n")
    among = (tmp_path / "nothing", tmp_path / "runs")
    assert find_weights("tinker://w1").saved_by(among) == first
    assert find_weights("tinker://w9").saved_by(among) is None
    assert find_weights(str(first)).saved_by(()) == first
    assert find_weights("cookhouse/tiny").saved_by(among) is None
