"""What a loop of one's own saves, and finds again."""

import json
import math
from pathlib import Path
from typing import Any

import pytest

from cookhouse.errors import InputError
from cookhouse.training import FakeService, FakeTrainingClient, save_checkpoint
from cookhouse.training import save_checkpoint_async as save
from cookhouse.weights.checkpoints import get_last_checkpoint
from cookhouse.weights.names import find_weights

pytestmark = pytest.mark.anyio


async def new_trainer(service: FakeService) -> FakeTrainingClient:
    trainer: Any = await service.create_lora_training_client("fake", seed=0)
    return trainer  # type: ignore[no-any-return]


@pytest.mark.parametrize("kind", ["state", "sampler", "both"])
async def test_what_was_saved_is_found_again(tmp_path: Path, kind: str) -> None:
    # Catches a path of the wrong kind, and a state that is lost on its way through the file.
    service = FakeService()
    state = {"step": 7, "epoch": 1, "batch": 3, "order": [2, 0, 1]}
    paths = await save(await new_trainer(service), "000007", tmp_path / "mine", state, kind)
    assert (
        set(paths)
        == {"state": {"state_path"}, "sampler": {"sampler_path"}, "both": {"state_path", "sampler_path"}}[kind]
    )
    assert set(paths.values()) <= set(service.states)
    for key in ("state_path", "sampler_path"):
        found = get_last_checkpoint(tmp_path / "mine", key)
        assert (found is None) == (key not in paths)
        if found is not None:
            assert getattr(found, key) == paths[key]
            assert (found.step, found.epoch, found.batch, found.final) == (7, 1, 3, False)
            assert found.loop_state == state


async def test_the_last_one_counts_and_the_folder_names_it(tmp_path: Path) -> None:
    trainer = await new_trainer(FakeService())
    for step in (1, 2):
        paths = await save(trainer, f"{step}", str(tmp_path), {"batch": step}, "both")
    await save(trainer, "seen", tmp_path, {"batch": 3, "final": True}, "sampler")
    found = get_last_checkpoint(str(tmp_path))
    assert found is not None
    assert (found.state_path, found.batch, found.step) == (paths["state_path"], 2, 2)
    seen = get_last_checkpoint(tmp_path, "sampler_path")
    assert seen is not None
    assert seen.final
    assert find_weights(str(tmp_path)).path("sampling") == seen.sampler_path
    assert get_last_checkpoint(tmp_path / "nowhere") is None


@pytest.mark.parametrize(
    ("state", "kind", "message"),
    [
        ({"order": {1, 2}}, "state", "loop_state cannot be written as JSON"),
        ({"loss": math.nan}, "state", "loop_state cannot be written as JSON"),
        ({"step": -1}, "state", "step of loop_state is -1; it must be a whole number"),
        ({"batch": "3"}, "state", "batch of loop_state is '3'; it must be a whole number"),
        ({}, "all", "unknown kind of checkpoint 'all'"),
    ],
)
async def test_what_cannot_be_saved_asks_nothing_of_the_service(
    tmp_path: Path, state: dict[str, Any], kind: str, message: str
) -> None:
    service = FakeService()
    trainer = await new_trainer(service)
    with pytest.raises(InputError, match=message):
        await save(trainer, "x", tmp_path / "mine", state, kind)
    assert not [call for call in service.calls if call.kind.startswith("save")]
    assert not (tmp_path / "mine").exists()


async def test_inside_an_event_loop_the_waiting_one_says_what_to_await(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="await save_checkpoint_async"):
        save_checkpoint(await new_trainer(FakeService()), "x", tmp_path, {})


async def test_lines_of_runs_are_what_they_were(tmp_path: Path) -> None:
    # Catches a new key in every run's file, which older programs would have to read.
    await save(await new_trainer(FakeService()), "x", tmp_path, {})
    (line,) = (tmp_path / "checkpoints.jsonl").read_text().splitlines()
    assert set(json.loads(line)) == {
        *("name", "epoch", "batch", "step", "final", "state_path", "sampler_path", "rolling")
    }
