"""A run that another is to replace is lost only once the other has begun."""

import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cookhouse.adapters import Adapters
from cookhouse.errors import InputError, ServiceError
from cookhouse.recipes import run_async
from cookhouse.recipes.run_sweep import sweep
from cookhouse.registry import Artifact, NewModel, open_registry
from cookhouse.runs import FolderChoice, FolderSpec, choose_folder, open_folder
from cookhouse.runs.folder.replaced import put_aside, settle_replaced
from cookhouse.runs.lock import hold
from cookhouse.settings.facts import NamedWeights, NamesWeights
from cookhouse.weights.checkpoints import Checkpoint

SMALL = {"max_steps": 1, "num_samples": 0, "num_eval": 0, "batch_size": 2, "n_train_samples": 4}


@pytest.fixture(autouse=True)
def _own_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))


def spec(path: Path, config: Mapping[str, Any] | None = None, behavior: str = "delete", **others: Any) -> FolderSpec:
    return FolderSpec(
        path=path, recipe="supervised", config=config or {}, seed=5, behavior=behavior, free_fields=(), **others
    )


def a_run(path: Path) -> Path:
    folder = open_folder(spec(path), FolderChoice.CREATE)
    folder.checkpoints.append(
        Checkpoint(name="final", epoch=0, batch=2, step=2, final=True, state_path="tinker://s", sampler_path=None)
    )
    folder.metrics.write_text('{"step": 0}\n')
    folder.close()
    stage = path / "part" / "stage"  # as in a sweep over a pipeline
    stage.mkdir(parents=True)
    text = (path / "checkpoints.jsonl").read_text().replace("tinker://s", "tinker://of-stage")
    (stage / "checkpoints.jsonl").write_text(text)
    (path / "service").mkdir()
    (path / "service" / "weights").write_text("old")
    (path / "mine.jsonl").write_text('{"prompt": "q", "completion": "a"}\n')
    return path


def content(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.name != "run.lock"
    }


@pytest.mark.parametrize(
    "config",
    [
        {"dataset_path": "{run}/mine.jsonl"},
        {"dataset_path": "{run}/m*.jsonl,other.jsonl"},
        {"load_checkpoint_path": "{run}"},
        {"load_checkpoint_path": "tinker://s"},
        {"load_checkpoint_path": "tinker://of-stage"},
        {"teacher_models": ["other", "tinker://s"]},
        {"env": "{run}/mine.jsonl:build"},
        {"artifact_store": "file://{run}/service"},
        {"runs": [{"batch_size": 1, "dataset_path": "{run}/mine.jsonl"}]},
    ],
)
def test_what_the_new_run_names_is_not_deleted(tmp_path: Path, config: Mapping[str, Any]) -> None:
    folder = a_run(tmp_path / "run")
    before = content(folder)

    def placed(value: Any) -> Any:
        if isinstance(value, str):
            return value.format(run=folder)
        if isinstance(value, list):
            return [placed(each) for each in value]
        return {name: placed(each) for name, each in value.items()} if isinstance(value, dict) else value

    with pytest.raises(InputError, match="delete would delete it; move it, or choose another log_path"):
        choose_folder(spec(folder, placed(config)))
    assert content(folder) == before


def test_what_runs_delete_refuses_is_not_deleted(tmp_path: Path) -> None:
    folder = a_run(tmp_path / "run")
    registry = open_registry(str(tmp_path / "models.db"), {})
    registry.register(
        NewModel(name="m", base_model="b", artifact=Artifact(path="tinker://s"), run_folder=str(folder.resolve()))
    )
    with pytest.raises(InputError, match=r"registered as m@1.*choose another log_path, or delete the run yourself"):
        choose_folder(spec(folder, registry=lambda: registry))
    later = spec(folder, behavior="ask", ask=lambda _: "delete", registry=lambda: registry)
    with pytest.raises(InputError, match="registered as m@1"):  # who is asked is refused before anything is moved
        open_folder(later, choose_folder(later))
    (tmp_path / "link").symlink_to(folder)
    with pytest.raises(InputError, match="is a link"):
        choose_folder(spec(tmp_path / "link"))
    part = a_run(folder / "part")
    with hold(part), pytest.raises(InputError, match="a run is going on in"):
        choose_folder(spec(folder))


def test_a_run_that_others_were_started_from_is_not_deleted(tmp_path: Path) -> None:
    folder = a_run(tmp_path / "run")
    named = NamedWeights(setting="load_checkpoint_path", name="tinker://s", known=NamesWeights(purpose="training"))
    open_folder(spec(tmp_path / "next", weights=[named]), FolderChoice.CREATE).close()
    with pytest.raises(InputError, match="what other runs were started from: next"):
        choose_folder(spec(folder))


@pytest.mark.parametrize("moment", ["while it is moved", "before the new one begins", "while it is put back"])
def test_a_killed_replacement_gives_the_old_run_back(tmp_path: Path, moment: str) -> None:
    folder = a_run(tmp_path / "run")
    before = content(folder)
    put_aside(folder)
    if moment == "before the new one begins":
        (folder / "config.json").write_text("new")
        (folder / "service").mkdir()
        (folder / "service" / "new").write_text("new")
    else:
        (folder / ".replaced").rename(folder / ".moving")
        shutil.move(folder / ".moving" / "service", folder / "service")
    assert choose_folder(spec(folder, behavior="resume")) is FolderChoice.RESUME
    assert content(folder) == before


@pytest.mark.parametrize("moment", ["trained", "deleting"])
def test_a_new_run_that_has_trained_is_kept(tmp_path: Path, moment: str) -> None:
    """Catches an old run that is put in the place of a new one's weights."""
    folder = a_run(tmp_path / "run")
    put_aside(folder)
    if moment == "deleting":
        (folder / ".replaced").rename(folder / ".deleted")
    else:
        (folder / "part").mkdir()
        (folder / "part" / "metrics.jsonl").write_text('{"step": 0}\n')
    (folder / "new").write_text("new")
    new = {name: data for name, data in content(folder).items() if name.startswith(("new", "part"))}
    assert not settle_replaced(folder)
    assert content(folder) == new


async def _refused() -> Any:
    raise InputError("no such model")


async def _failed() -> Any:
    raise ServiceError("out of memory")


@pytest.mark.anyio
async def test_a_run_takes_the_place_of_another_when_it_begins(tmp_path: Path) -> None:
    """Catches an old run that is deleted for one that the service refuses, or that stays behind one that trains."""
    noop = Adapters.noop(sinks=[])
    config = {**SMALL, "log_path": str(tmp_path / "run"), "behavior_if_log_dir_exists": "delete"}
    await run_async("supervised", config, adapters=noop)
    before = content(tmp_path / "run")
    for service, raised in ((_refused, InputError), (_failed, ServiceError)):
        with pytest.raises(raised) as error:
            await run_async("supervised", config, adapters=replace(noop, service=service))
        assert "is there as before" in error.value.__notes__[-1]
        assert content(tmp_path / "run") == before
    bad = tmp_path / "bad.jsonl"
    bad.write_text('{"prompt": "q"}\n')
    with pytest.raises(InputError) as refused:
        await run_async("supervised", {**config, "dataset_path": str(bad)}, adapters=noop)
    assert not any("resume" in note for note in getattr(refused.value, "__notes__", ()))
    await run_async("supervised", {**config, "seed": 7}, adapters=noop)
    after = content(tmp_path / "run")
    assert after.keys() == before.keys()
    assert after["config.json"] != before["config.json"]


def test_a_sweep_of_which_no_run_can_begin_replaces_none(tmp_path: Path) -> None:
    settings = {**SMALL, "log_path": str(tmp_path / "run"), "behavior_if_log_dir_exists": "delete"}
    del settings["n_train_samples"]
    (tmp_path / "rows.jsonl").write_text('{"prompt": "q", "completion": "a"}\n' * 2)
    noop = Adapters.noop(sinks=[])
    grid = {"learning_rate": [1e-4, 1e-3]}
    sweep("supervised", {**settings, "dataset_path": str(tmp_path / "rows.jsonl")}, grid=grid, adapters=noop)
    before = content(tmp_path / "run")
    with pytest.raises(InputError, match=r"every run of the sweep failed: .*typo.jsonl does not exist"):
        sweep("supervised", {**settings, "dataset_path": str(tmp_path / "typo.jsonl")}, grid=grid, adapters=noop)
    assert content(tmp_path / "run") == before
