"""`cookhouse sweep` with successive halving: what it takes, what it prints, and how a paused run ends."""

import json
from pathlib import Path

import pytest

from cookhouse.cli import main

FEW = ("n_train_samples=8", "num_eval=2", "batch_size=2", "num_samples=0")


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("TINKER_API_KEY", "TINKER_BASE_URL", "TINKER_CREDENTIAL_CMD"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)


def command(*words: str) -> int | str | None:
    with pytest.raises(SystemExit) as caught:
        main(list(words))
    return caught.value.code


def test_the_table_tells_how_far_each_run_went(capsys: pytest.CaptureFixture[str]) -> None:
    # Catches an option that does not arrive, a table of values of unknown steps, and a best that nobody can look at.
    grid = ("learning_rate=1e-3,1e-2,1e-1", "log_path=halved", "--adapters", "noop")
    how = ("--min-steps", "1", "--max-steps", "4", "--reduction-factor", "2", "--metric", "test/nll")
    assert command("sweep", "supervised", *FEW, *grid, *how) == 0
    out = capsys.readouterr().out
    header = next(line for line in out.splitlines() if line.startswith("run  "))
    assert header.split()[:4] == ["run", "learning_rate", "state", "steps"]
    rows = [line.split() for line in out.splitlines() if line[:2] in ("1-", "2-", "3-")]
    assert sorted(row[2:4] for row in rows) == [["finished", "4"], ["stopped", "1"], ["stopped", "1"]]
    assert "after 6 of 12 steps" in out
    [best] = [row[0] for row in rows if row[-1] == "*"]
    assert f"best         {best}, held-out loss" in out
    assert "--min-steps" not in (Path("halved") / "experiment.json").read_text()
    document = json.loads((Path("halved") / "experiment.json").read_text())
    assert (document["version"], document["min_steps"], document["reduction_factor"]) == (2, 1, 2)
    assert command("runs", "show", "halved") == 0
    assert "stopped" in capsys.readouterr().out


def test_a_plan_tells_when_the_runs_are_compared(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("learning_rate=1e-3,1e-2", "log_path=halved", "max_steps=16", "--min-steps", "2", "--dry-run")
    assert command("sweep", "supervised", *FEW, *words) == 0
    assert "2 runs of supervised in halved, compared after steps 2, 6 of 16; nothing" in capsys.readouterr().out
    assert not Path("halved").exists()


def test_what_cannot_be_is_refused_with_the_way_out(capsys: pytest.CaptureFixture[str]) -> None:
    grid = ("learning_rate=1e-3,1e-2", "log_path=halved", "--adapters", "noop")
    assert command("sweep", "supervised", *FEW, *grid, "--min-steps", "1") == 2
    assert "every run has the same max_steps; set it once, as in max_steps=128" in capsys.readouterr().err
    assert command("sweep", "supervised", *FEW, *grid, "--max-steps", "2", "--reduction-factor", "2") == 2
    assert "it is read with min_steps; leave it out" in capsys.readouterr().err
    assert not Path("halved").exists()


def test_a_run_that_was_told_to_pause_ends_well(capsys: pytest.CaptureFixture[str]) -> None:
    # Catches a pause that a script takes for a failure, and one that nobody is told how to end.
    settings = (*FEW, "max_steps=3", "log_path=runs/one", "--adapters", "noop")
    assert command("run", "supervised", *settings, "pause_at_step=2") == 0
    out = capsys.readouterr().out
    assert "paused and saved after 2 of 3 steps" in out
    assert "paused: pause_at_step=2" in out
    assert "to continue" in out
