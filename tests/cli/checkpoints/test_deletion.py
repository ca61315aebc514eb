"""`cookhouse checkpoints delete` and `push`: what goes, what stays, and who is asked."""

import json
import shutil
from contextlib import closing
from pathlib import Path

import pytest
from tests.cli.checkpoints.conftest import Run, connected
from tests.contract.calls import new_trainer, train
from tests.server.hosting import KEY

from cookhouse.cli import main
from cookhouse.errors import InputError
from cookhouse.models.hub import HuggingFaceHub, NoopHub
from cookhouse.runs.lock import hold
from cookhouse.server.storage.checkpoints.state_folder import stored_checkpoints
from cookhouse.server.storage.store.state_dir import lock_state_dir


@pytest.fixture
def folder(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the run that can be spoiled, in the place where runs are looked for."""
    monkeypatch.chdir(tmp_path)
    for name in ("TINKER_BASE_URL", "TINKER_API_KEY", "HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    copy = tmp_path / "runs" / "mine"
    shutil.copytree(run.folder, copy)
    return copy


def call(*arguments: str | Path) -> int:
    with pytest.raises(SystemExit) as caught:
        main(["checkpoints", *map(str, arguments)])
    assert isinstance(caught.value.code, int)
    return caught.value.code


def recorded(folder: Path) -> list[tuple[str | None, str | None]]:
    lines = (folder / "checkpoints.jsonl").read_text().splitlines()
    return [(row["state_path"], row["sampler_path"]) for row in map(json.loads, lines)]


def kept(folder: Path) -> set[str]:
    return {each.row.path for each in stored_checkpoints(folder / "service")}


def num_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in (folder / "service" / "checkpoints").rglob("*") if path.is_file())


def test_one_path_goes_and_the_rest_stays(folder: Path, run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    # Catches a record that names weights which are gone, and files that stay on disk.
    before = num_bytes(folder)
    assert call("delete", run.state_path, "--yes") == 0
    assert recorded(folder) == [(None, run.sampler_path)]
    assert kept(folder) == {run.sampler_path, run.external_path}
    freed = f"{(before - num_bytes(folder)) / 1e6:,.1f} MB"
    assert capsys.readouterr().out == f"deleted {run.state_path} ({freed})\n{freed} freed\n"


def test_a_run_means_all_that_it_saved(folder: Path, run: Run) -> None:
    assert call("delete", "mine", "--yes") == 0
    assert recorded(folder) == []
    assert kept(folder) == {run.external_path}


def test_the_last_saves_can_be_kept(folder: Path, run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    path = folder / "checkpoints.jsonl"
    newer = {**json.loads(path.read_text()), "step": 3, "state_path": run.external_path, "sampler_path": None}
    path.write_text(path.read_text() + json.dumps(newer) + "\n")
    assert call("delete", "mine", "--yes", "--keep", "1") == 0
    assert recorded(folder) == [(run.external_path, None)]
    assert call("delete", "mine", "--yes", "--keep", "1") == 2
    assert "nothing to delete" in capsys.readouterr().err


def test_the_best_is_kept_with_the_last(folder: Path, run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    """Catches a run whose name means other weights after a tidying up, and a child whose start is deleted."""
    path = folder / "checkpoints.jsonl"
    best = {**json.loads(path.read_text()), "best": {"test/nll": 1.0}}
    last = {**best, "best": {}, "step": 3, "state_path": run.external_path, "sampler_path": None}
    path.write_text(json.dumps(best) + "\n" + json.dumps(last) + "\n")
    assert call("delete", "mine", "--yes", "--keep", "1") == 2
    assert "nothing to delete" in capsys.readouterr().err
    child = folder.parent / "child"
    child.mkdir()
    shutil.copy(folder / "run.json", child)
    (child / "config.json").write_text(json.dumps({"recipe": "supervised", "config": {}, "weights": [str(folder)]}))
    assert call("delete", run.state_path, "--yes") == 2
    assert "is what other runs were started from: child" in capsys.readouterr().err


def test_nobody_is_asked_without_a_terminal(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = kept(folder)
    assert call("delete", "mine") == 2
    assert "pass --yes to delete without being asked" in capsys.readouterr().err
    assert kept(folder) == before


@pytest.mark.parametrize("named", ["path", "folder"])
def test_what_another_run_began_with_is_refused(
    folder: Path, run: Run, named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    child = folder.parent / "child"
    child.mkdir()
    shutil.copy(folder / "run.json", child)
    name = run.state_path if named == "path" else str(folder)
    record = {"recipe": "supervised", "config": {}, "weights": [name]}
    (child / "config.json").write_text(json.dumps(record))
    assert call("delete", run.state_path, "--yes") == 2
    assert "is what other runs were started from: child; delete these first, or pass --force" in capsys.readouterr().err
    assert run.state_path in kept(folder)
    assert call("delete", run.state_path, "--yes", "--force") == 0
    assert run.state_path not in kept(folder)


def test_what_is_registered_is_refused(folder: Path, run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "config.json").write_text(json.dumps({"recipe": "supervised", "config": {"model_name": "m"}}))
    with pytest.raises(SystemExit):
        main(["models", "register", "sums", "mine"])
    capsys.readouterr()
    for path in (run.state_path, run.sampler_path):
        assert call("delete", path, "--yes") == 2
        assert f"{path} is registered as sums@1" in capsys.readouterr().err
    assert {run.state_path, run.sampler_path} <= kept(folder)


def test_what_is_in_use_is_refused(folder: Path, run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    # Catches weights deleted under a run that is about to be resumed from them, or under a server that serves them.
    with hold(folder):
        assert call("delete", run.state_path, "--yes") == 2
    assert "a run is going on in" in capsys.readouterr().err
    with closing(lock_state_dir(folder / "service")):
        assert call("delete", run.state_path, "--yes") == 2
    assert "is in use by another server" in capsys.readouterr().err
    assert recorded(folder) == [(run.state_path, run.sampler_path)]


def test_weights_on_a_service_are_deleted_there(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with connected(tmp_path / "elsewhere") as (host, client):
        trainer = new_trainer(client)
        train(trainer, 1)
        path = trainer.save_state("one").result().path
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))  # the user's own may have a server's
        assert call("delete", path, "--yes") == 2
        assert "no run in runs/ recorded" in capsys.readouterr().err
        monkeypatch.setenv("TINKER_BASE_URL", host.url)
        monkeypatch.setenv("TINKER_API_KEY", KEY)
        assert call("delete", path, "--yes") == 0
        assert capsys.readouterr().out.splitlines()[-1].endswith(" MB freed")
        assert call("delete", path, "--yes") == 2
        assert f"the service has no checkpoint {path}" in capsys.readouterr().err
    assert recorded(folder), "a run that has nothing to do with it"


def test_a_push_uploads_what_an_export_writes(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[bool] = []

    class Hub(NoopHub):
        def upload(self, folder: Path, name: str, *, private: bool = True) -> str:
            asked.append(private)
            return super().upload(folder, name, private=private)

    hub = Hub(tmp_path / "hub")
    monkeypatch.setattr("cookhouse.models.hub.current_hub", lambda: hub)
    assert call("push", folder, "me/small") == 0
    assert call("push", "mine", "me/small", "--public") == 0
    assert asked == [True, False]
    said = capsys.readouterr()
    assert said.out.startswith("synthetic://me/small (")
    assert "to private me/small" in said.err
    files = {path.name for path in (tmp_path / "hub" / "me--small").iterdir()}
    assert {"adapter_config.json", "adapter_model.safetensors", "README.md"} <= files


def test_a_push_without_a_token_says_how_to_have_one(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.get_token", lambda: None)
    monkeypatch.setattr("huggingface_hub.constants.is_offline_mode", lambda: False)
    with pytest.raises(InputError, match="no token to write to me/small with: set HF_TOKEN"):
        HuggingFaceHub().upload(folder, "me/small")
