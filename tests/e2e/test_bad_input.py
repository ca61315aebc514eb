"""Bad input gives one line, exit code 2 and no traceback, starts no server, and leaves nothing half-made."""

import json
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from tests.e2e.conftest import Cookhouse

from cookhouse.cli import main

GOOD = {"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}]}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("TINKER_API_KEY", "TINKER_BASE_URL", "TINKER_CREDENTIAL_CMD"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def refuse(words: Sequence[str], capsys: pytest.CaptureFixture[str]) -> str:
    """What the command says on refusing its input."""
    with pytest.raises(SystemExit) as caught:
        main(["run", "supervised", *words])
    err = capsys.readouterr().err
    assert caught.value.code == 2, err
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    return err


def message(role: str, content: str = "x") -> dict[str, str]:
    return {"role": role, "content": content}


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([json.dumps(GOOD), '{"messages": ['], ("rows.jsonl", "2")),
        ([json.dumps(GOOD), json.dumps({"note": "hi"})], ("rows.jsonl", "2", "messages")),
        (
            [json.dumps({"messages": [message("robot"), message("assistant")]})],
            ("rows.jsonl", "1", "robot", "assistant"),
        ),
        ([json.dumps({"messages": [message("asistant")]})], ("asistant", "assistant")),
        ([json.dumps(GOOD), json.dumps({"messages": []})], ("rows.jsonl", "2", "empty")),
        ([json.dumps({"messages": [message("user")]})], ("rows.jsonl", "1", "train")),
        ([], ("rows.jsonl",)),
    ],
    ids=[
        "JSON",
        "no messages",
        "role",
        "role typo",
        "empty conversation",
        "no trained token",
        "no row",
    ],
)
def test_a_bad_file(rows: list[str], said: tuple[str, ...], folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "rows.jsonl").write_text("".join(row + "\n" for row in rows))
    error = refuse(["dataset_path=rows.jsonl", "batch_size=4"], capsys)
    assert all(word in error for word in said), error
    assert [path.name for path in folder.iterdir()] == ["rows.jsonl"]


def test_bad_rows_are_named_a_line_for_each_reason(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "rows.jsonl").write_text("".join([json.dumps(GOOD) + "\n", "{\n" * 4, "[]\n", "{\n" * 20]))
    with pytest.raises(SystemExit) as caught:
        main(["run", "supervised", "dataset_path=rows.jsonl"])
    assert caught.value.code == 2
    first, *lines = capsys.readouterr().err.splitlines()
    assert first == "error: 25 rows cannot be used"
    assert [line.split(": ")[0] for line in lines] == [
        "  rows.jsonl:2-5, 7-21",
        "  rows.jsonl:6",
        "  and 5 more",
    ]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["dataset_path=missing.jsonl"], ("missing.jsonl",)),
        (["dataset_path=."], (".",)),
        (["test_path=missing.jsonl"], ("missing.jsonl",)),
        (["model_name=cookhouse/tinny"], ("cookhouse/tinny", "cookhouse/tiny")),
        (["model_name=./no-such-folder"], ("no-such-folder",)),
        (["renderer_name=qwen3_instuct"], ("qwen3_instuct", "qwen3_instruct")),
        (["train_on_what=all_asistant_messages"], ("all_asistant_messages", "all_assistant_messages")),
        (["lr_schedule=lineer"], ("lineer", "linear")),
        (["batch_size=0"], ("batch_size", "0")),
        (["learning_rate=-1"], ("learning_rate", "-1")),
        (["learning_rate=nan"], ("learning_rate", "nan")),
        (["lora_rank=-1"], ("lora_rank", "0")),
        (["num_epochs=0"], ("num_epochs", "0")),
        (["max_length=1"], ("max_length",)),
        (["behavior_if_log_dir_exists=overwrite"], ("overwrite",)),
        (["load_checkpoint_path=weights"], ("weights", "tinker://")),
        (["base_url=localhost:8000"], ("localhost:8000",)),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_a_bad_setting(
    words: list[str], said: tuple[str, ...], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    error = refuse(words, capsys)
    assert all(word in error for word in said), error
    assert not list(folder.iterdir())


@pytest.mark.parametrize("words", [[], ["behavior_if_log_dir_exists=raise"]])
def test_an_existing_run_folder_with_nobody_to_ask(
    words: list[str], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "mine").mkdir()
    (folder / "mine" / "metrics.jsonl").write_text("precious\n")
    error = refuse(["log_path=mine", *words], capsys)
    assert "mine" in error
    assert "behavior_if_log_dir_exists" in error
    assert [path.name for path in (folder / "mine").iterdir()] == ["metrics.jsonl"]
    assert (folder / "mine" / "metrics.jsonl").read_text() == "precious\n"


@pytest.mark.usefixtures("folder")
def test_a_dry_run_of_bad_data_is_refused_alike(capsys: pytest.CaptureFixture[str]) -> None:
    assert "missing.jsonl" in refuse(["dataset_path=missing.jsonl", "--dry-run"], capsys)


def test_a_dry_run_shows_the_plan_and_makes_nothing(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["run", "supervised", "--dry-run", "batch_size=16", "max_steps=5"])
    assert not caught.value.code
    out = capsys.readouterr().out
    assert "batch_size = 16" in out
    assert "5 in all" in out
    assert "qwen3_instruct" in out
    assert "⟦" in out, "the preview marks what is trained on"
    assert not list(folder.iterdir())


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1 MB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(disk)]
    if subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("needs the right to mount a small file system")
    yield disk
    subprocess.run(["umount", "--lazy", str(disk)], check=True)


@pytest.mark.slow
@pytest.mark.parametrize("free_bytes", [0, 600_000], ids=["full from the start", "full on saving"])
def test_a_full_disk(free_bytes: int, small_disk: Path, cookhouse: Cookhouse) -> None:
    (small_disk / "filler").write_bytes(bytes(2**20 - free_bytes))
    done = cookhouse.run(
        "run",
        "supervised",
        f"log_path={small_disk / 'run'}",
        "max_steps=4",
        "save_every=1",
        "batch_size=4",
        "num_eval=0",
    )
    assert done.returncode == 2, done.stdout + done.stderr
    (error,) = (line for line in done.stderr.splitlines() if not line.startswith("warning: "))
    assert "space" in error
    assert not list(small_disk.rglob("*.safetensors")), "a checkpoint is there in half"
