"""Where the settings of a run came from is written when it starts, and read without its recipe."""

import json
from pathlib import Path
from typing import Any

import pytest

from cookhouse.adapters import Adapters
from cookhouse.recipes import run
from cookhouse.runs.reading.settings import has_origins, recorded_settings


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.chdir(tmp_path)
    rows = [{"prompt": f"say {n}", "completion": str(n)} for n in range(4)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return {"dataset_path": "rows.jsonl", "max_steps": 1, "num_eval": 0, "num_samples": 0, "log_path": "runs/a"}


def test_a_run_records_what_was_set_and_which_default_the_others_have(small: dict[str, Any]) -> None:
    # Catches origins that are told by the recipe as it is now, or as it was when the run was resumed.
    run("supervised", small, adapters=Adapters.noop())
    found = recorded_settings(json.loads(Path("runs/a/config.json").read_text()))
    origins = {setting.name: setting.origin for setting in found}
    assert {name for name, origin in origins.items() if origin == "set"} == set(small) - {"log_path"}
    assert (origins["learning_rate"], origins["lora_rank"]) == ("embedded default", "default")
    assert [setting.is_set for setting in found] == sorted([setting.is_set for setting in found], reverse=True)
    assert "log_path" not in origins, "where it lies is not what it is"


@pytest.mark.parametrize("origins", [None, "set", {"batch_size": 1}, {"other": "set"}])
def test_origins_that_a_run_does_not_tell_are_unknown(origins: object) -> None:
    # Catches settings of a folder from elsewhere that pass for defaults, or that break the page.
    found = recorded_settings({"config": {"batch_size": 8, "labels": ["a"]}, "origins": origins})
    assert [(setting.text, setting.origin) for setting in found] == [("8", None), ('["a"]', None)]
    assert not has_origins(found)
