"""Sinks and evaluators of the user's own, named in the settings."""

import json
from pathlib import Path
from typing import Any

import pytest

from cookhouse.adapters import Adapters
from cookhouse.errors import InputError
from cookhouse.recipes import run_async
from cookhouse.telemetry import read_metrics
from cookhouse.training import FakeService

pytestmark = pytest.mark.anyio

MINE = """
class File:
    def __init__(self, folder, settings):
        if settings["seed"] == 13:
            raise OSError("no network")
        self.file = (folder / "mine.txt").open("w")
    def write(self, record):
        if type(record).__name__ == "MetricsRow":
            self.file.write(f"{record.step}\\n")
            if record.step == 2:
                raise OSError("broken in the middle")
    def close(self):
        self.file.close()

def evaluator(settings, renderer):
    async def measure(client):
        return {"mine": 0.25, "unmeasured": None}
    return measure
"""


@pytest.fixture
def config(tmp_path: Path) -> dict[str, Any]:
    (tmp_path / "mine.py").write_text(MINE)
    rows = [{"prompt": f"say {n}", "completion": str(n)} for n in range(8)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    data = {"dataset_path": str(tmp_path / "rows.jsonl"), "batch_size": 2, "log_path": str(tmp_path / "run")}
    return {**data, "sinks": f"{tmp_path}/mine.py:File"}


async def test_a_sink_gets_what_happens_and_never_stops_a_run(config: dict[str, Any], tmp_path: Path) -> None:
    result = await run_async("supervised", config, adapters=Adapters(service=FakeService().connect, sinks=[]))
    assert result.summary.num_steps == 4
    assert (tmp_path / "run" / "mine.txt").read_text() == "0\n1\n2\n"


async def test_a_sink_that_cannot_start_refuses_the_run(config: dict[str, Any], tmp_path: Path) -> None:
    service = FakeService()
    with pytest.raises(InputError, match=r"sink .*mine\.py:File cannot start: OSError: no network"):
        await run_async("supervised", {**config, "seed": 13}, adapters=Adapters(service=service.connect, sinks=[]))
    assert service.calls == []
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("setting", ["sinks", "evaluators", "infrequent_evaluators"])
async def test_a_name_that_is_none_opens_nothing(config: dict[str, Any], tmp_path: Path, setting: str) -> None:
    service = FakeService()
    wrong = {**config, setting: f"{tmp_path}/mine.py:Fil"}
    with pytest.raises(InputError, match="unknown name in"):
        await run_async("supervised", wrong, adapters=Adapters(service=service.connect, sinks=[]))
    assert service.calls == []
    assert not (tmp_path / "run").exists()


async def test_evaluators_run_at_their_own_cadences_and_at_the_end(config: dict[str, Any], tmp_path: Path) -> None:
    # Catches an evaluator at the other's cadence, and a figure invented where none was measured.
    settings = {**config, "sinks": "", "eval_every": 1}
    cadences: dict[str, dict[str, int]] = {"evaluators": {}, "infrequent_evaluators": {"infrequent_eval_every": 3}}
    for name, cadence in cadences.items():
        folder = tmp_path / name
        changed = {**settings, **cadence, name: f"{tmp_path}/mine.py:evaluator", "log_path": str(folder)}
        await run_async("supervised", changed, adapters=Adapters(service=FakeService().connect, sinks=[]))
        steps = [row["step"] for row in read_metrics(folder / "metrics.jsonl") if row.get("test/mine") == 0.25]
        assert steps == ([0, 1, 2, 3, 4] if name == "evaluators" else [3, 4])
        assert not any("test/unmeasured" in row for row in read_metrics(folder / "metrics.jsonl"))
