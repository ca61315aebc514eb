"""What a name means where weights are asked for: catches a word that is taken for a base model, or for another run."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.runs.kit import make_run

from cookhouse.errors import InputError, UnknownNameError
from cookhouse.models.hub import HubPart, NoopHub, hub_in_use
from cookhouse.registry import Artifact, NewModel, open_registry
from cookhouse.runs.listing.weights import weights_asked_for, weights_named


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Runs, a registered model, a base model in a folder, and gpt2 in the hub's cache."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("COOKHOUSE_REGISTRY", raising=False)
    for number, name in enumerate(("alpha-2", "alpha-1", "warm"), start=1):
        (make_run(Path("runs") / name, number=number) / "checkpoints.jsonl").touch()
    make_run(Path("runs/score"), number=4)  # which saves none
    Path("runs/model").mkdir()
    Path("runs/model/config.json").write_text('{"architectures": []}')
    Path("runs/empty").mkdir()
    open_registry(None, {}).register(
        NewModel(name="sums", base_model="org/trained", artifact=Artifact(path="tinker://a/b"))
    )
    hub = NoopHub()
    hub.download("gpt2", HubPart.CONFIG)
    with hub_in_use(hub):
        yield Path("runs")


@pytest.mark.parametrize(
    ("name", "may_be_model", "means"),
    [
        ("warm", False, "runs/warm"),
        ("3", False, "runs/warm"),
        ("wa", False, "runs/warm"),
        ("warm", True, "runs/warm"),
        ("#3", True, "runs/warm"),
        ("wa", True, "wa"),
        ("Qwen/Qwen3-8B", True, "Qwen/Qwen3-8B"),
        ("tinker://a/b", False, "tinker://a/b"),
        ("mine@2", False, "mine@2"),
        ("runs/model", False, "runs/model"),
    ],
)
def test_weights_of_a_run_are_named_by_its_folder(name: str, may_be_model: bool, means: str, place: Path) -> None:
    # Catches a base model that is taken for a run, and a number that means another run when this one is resumed.
    assert weights_named(name, may_be_model=may_be_model, place=place) == means


@pytest.mark.parametrize(
    ("name", "means"),
    [
        ("warm", "runs/warm"),
        ("wa", "runs/warm"),
        ("#3", "runs/warm"),
        ("runs/warm", "runs/warm"),
        ("runs/model", "runs/model"),
        ("tinker://a/b", "tinker://a/b"),
        ("sums@1", "sums@1"),
        ("cookhouse/tiny", "cookhouse/tiny"),
        ("cookhouse/tiny-chat", "cookhouse/tiny-chat"),
        ("Qwen/Qwen3-8B", "Qwen/Qwen3-8B"),
        ("Qwen/Qwen3-8B:peft:262144", "Qwen/Qwen3-8B:peft:262144"),
        ("gpt2", "gpt2"),
    ],
)
def test_what_is_asked_for_is_a_run_or_what_weights_go_by(name: str, means: str, place: Path) -> None:
    assert weights_asked_for(name, has_service=False, place=place).name == means


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("warmm", "did you mean warm?"),
        ("runs/wram", "did you mean runs/warm"),
        ("sums", "did you mean sums@1?"),
        ("cookhouse/tinny", "did you mean cookhouse/tiny"),
        ("https://example.com", "allowed: warm, alpha-1, alpha-2, sums@1, cookhouse/tiny, "),
        ("What is 2+3?", "allowed: warm"),
        ("gpt3", "allowed: warm"),
        ("", "allowed: warm"),
    ],
)
def test_what_names_no_weights_is_refused_with_what_is_near(name: str, hint: str, place: Path) -> None:
    """Catches a word, or the path of a run that is not there, which is sent to the hub or asked of the base model."""
    with pytest.raises(UnknownNameError) as caught:
        weights_asked_for(name, has_service=False, place=place)
    assert str(caught.value).startswith(f"unknown weights {name!r}; {hint}")


def test_what_may_be_of_several_runs_or_of_none_is_refused(place: Path) -> None:
    with pytest.raises(InputError, match="'alpha' begins the names of several runs"):
        weights_asked_for("alpha", has_service=False, place=place)
    with pytest.raises(InputError, match="runs/empty is a folder without weights in it"):
        weights_asked_for("runs/empty", has_service=False, place=place)


def test_a_configured_service_may_have_a_model_of_any_name(place: Path) -> None:
    assert weights_asked_for("mine", has_service=True, place=place).name == "mine"
    with pytest.raises(UnknownNameError):
        weights_asked_for("What is 2+3?", has_service=True, place=place)
