"""Training on conversations that a user brings: real ones, of several turns."""

import json
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.conftest import SETTINGS, Cookhouse, losses

pytestmark = pytest.mark.slow

MAX_TURNS = 8


def read_rows(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def from_self_instruct(row: dict[str, Any]) -> list[dict[str, str]]:
    """One task, asked again for each of its instances."""
    turns = []
    for instance in row["instances"]:
        asked = f"{row['instruction']}\n\n{instance['input']}".strip()
        turns += [{"role": "user", "content": asked}, {"role": "assistant", "content": instance["output"]}]
    return turns[:MAX_TURNS]


def from_taskmaster(row: dict[str, Any]) -> list[dict[str, str]]:
    """One dialog from a user's turn to an assistant's, with what a speaker says in a row put together."""
    turns = [
        {"role": speaker, "content": "\n".join(said["text"] for said in together)}
        for speaker, together in groupby(row["utterances"], key=lambda said: str(said["speaker"]))
    ]
    while turns and turns[0]["role"] != "user":
        turns.pop(0)
    turns = turns[:MAX_TURNS]
    while turns and turns[-1]["role"] != "assistant":
        turns.pop()
    return turns


@pytest.fixture(scope="session")
def conversations(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """conversations.jsonl of both."""
    tasks = [from_self_instruct(row) for row in read_rows(shared / "data" / "self_instruct" / "seed_tasks.jsonl")]
    dialogs = [from_taskmaster(row) for row in read_rows(shared / "data" / "taskmaster4" / "dialogs_600.jsonl")]
    kept = [turns for turns in (*tasks, *dialogs) if turns]
    assert sum(len(turns) >= 4 for turns in kept) > 400, "hardly any has several turns"
    file = tmp_path_factory.mktemp("data") / "conversations.jsonl"
    file.write_text("".join(json.dumps({"messages": turns}) + "\n" for turns in kept), encoding="utf-8")
    return file


def test_they_train(cookhouse: Cookhouse, conversations: Path) -> None:
    # Some are longer than the model takes: catches a run that ends at the first of them.
    own = ("num_eval=0", "max_steps=6", f"dataset_path={conversations}", "log_path=own")
    unread = {"eval_max_tokens", *(word.split("=")[0] for word in own)}
    kept = [setting for setting in SETTINGS if setting.split("=")[0] not in unread]
    done = cookhouse.run("run", "supervised", *kept, *own)
    assert done.returncode == 0, done.stderr
    assert "held-out" not in done.stdout, "there is no held-out set for one's own data"
    values = list(losses(cookhouse.folder / "own").values())
    assert len(values) == 6
    assert all(0.0 < value < 20.0 for value in values)


def test_a_dry_run_counts_them(cookhouse: Cookhouse, conversations: Path) -> None:
    done = cookhouse.run(
        "run", "supervised", "--dry-run", f"dataset_path={conversations}", "max_length=256", "batch_size=8"
    )
    assert done.returncode == 0, done.stderr
    number = len(read_rows(conversations))
    assert f"{number:,} to train on, 0 held out" in done.stdout
    assert " are cut to 256 tokens" in done.stdout
    assert not (cookhouse.folder / "runs").exists()
