"""Catches a run directory of an older version that is not listed, or does not go on where it was."""

import json
from pathlib import Path
from typing import Any

import pytest
import tinker

from cookhouse.adapters import Adapters
from cookhouse.recipes import run_async
from cookhouse.recipes.supervised import SupervisedConfig
from cookhouse.runs import find_runs, overview_of
from cookhouse.server.storage.checkpoints.state_folder import stored_checkpoints
from cookhouse.training import FakeService
from cookhouse.training.clients.fake import FakeTrainingClient
from cookhouse.weights.names import find_weights
from tests.upgrade.folders import VERSIONS, unpack
from tests.upgrade.make_folders import RUN

pytestmark = pytest.mark.anyio

STEPS = list(range(RUN["max_steps"]))


@pytest.fixture(params=VERSIONS)
def run(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The older run, which is resumed from the folder that it was started in."""
    folder = unpack(request.param, "run", tmp_path).folder
    monkeypatch.chdir(folder)
    return folder / "run"


def rows_of(run: Path) -> list[dict[str, Any]]:
    """Its training steps, as they are logged."""
    return [row for row in map(json.loads, (run / "metrics.jsonl").read_text().splitlines()) if "train/loss" in row]


def saved(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "checkpoints.jsonl").read_text().splitlines()]


def test_it_is_listed_with_what_it_saved(run: Path) -> None:
    """Would catch a run, or weights, that can be named no more."""
    [found] = find_runs(run.parent)
    overview = overview_of(found)
    assert (overview.name, overview.recipe, overview.model) == ("run", "supervised", "cookhouse/tiny")
    assert (overview.status, overview.steps, overview.total_steps) == ("interrupted", 3, 6)
    [kept] = stored_checkpoints(run / "service")
    assert find_weights(str(run)).path("training") == saved(run)[0]["state_path"] == kept.row.path


async def test_a_resume_trains_the_rows_that_are_left(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Would catch a cursor, an order of rows or a setting that is read otherwise than it was written."""
    trained: list[list[list[int]]] = []
    forward_backward = FakeTrainingClient.forward_backward

    def recording(self: FakeTrainingClient, data: list[tinker.Datum], *args: Any) -> Any:
        trained.append([datum.model_input.to_ints() for datum in data])
        return forward_backward(self, data, *args)

    monkeypatch.setattr(FakeTrainingClient, "forward_backward", recording)
    service = FakeService()
    config = SupervisedConfig(**{**RUN, "log_path": "whole"})
    await run_async("supervised", config, adapters=Adapters(service=service.connect))
    whole = trained.copy()
    trained.clear()
    before = rows_of(run)[:2]
    states = {saved(run)[0]["state_path"]: service.states[saved(Path("whole"))[0]["state_path"]]}
    config = SupervisedConfig(**RUN, behavior_if_log_dir_exists="resume")
    await run_async("supervised", config, adapters=Adapters(service=FakeService(states=states).connect))
    assert trained == whole[2:]
    assert rows_of(run)[:2] == before
    for name in ("step", "train/num_tokens", "optim/lr"):
        assert [row[name] for row in rows_of(run)] == [row[name] for row in rows_of(Path("whole"))]
    names = ("train/loss", "optim/grad_norm")
    assert [[row[name] for name in names] for row in rows_of(run)[2:]] == [
        [row[name] for name in names] for row in rows_of(Path("whole"))[2:]
    ]


@pytest.mark.slow
async def test_it_runs_to_its_end_on_the_engine(run: Path) -> None:
    """Would catch weights or moments of a checkpoint that are not those that were saved."""
    was = rows_of(run)
    config = SupervisedConfig(**RUN, behavior_if_log_dir_exists="resume")
    result = await run_async("supervised", config)
    rows = rows_of(run)
    assert [row["step"] for row in rows] == STEPS
    assert rows[:2] == was[:2]
    assert rows[2]["train/loss"] == pytest.approx(was[2]["train/loss"], rel=2**-6), "bf16, on whichever processor"
    assert rows[2]["optim/grad_norm"] == pytest.approx(was[2]["optim/grad_norm"], rel=2**-4)
    assert not result.summary.is_interrupted
    assert saved(run)[-1]["final"]
    assert len(stored_checkpoints(run / "service")) == 4
