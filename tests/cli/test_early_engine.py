"""The engine's process starts before the client loads its libraries, and leaves nothing where it is not needed."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow

HEAVY = ("torch", "transformers", "tinker", "fastapi", "sqlalchemy", "uvicorn", "ray", "datasets")

# Runs the command; writes what was loaded when it started an engine, and the process that it started.
SPY = """
import asyncio, json, sys
from pathlib import Path
start = asyncio.create_subprocess_exec

async def spy(*command, **how):
    told = {{"loaded": [name for name in {heavy!r} if name in sys.modules]}}
    Path("started.json").write_text(json.dumps(told))
    {instead}
    process = await start(*command, **how)
    Path("started.json").write_text(json.dumps({{**told, "pid": process.pid}}))
    {then}
    return process

asyncio.create_subprocess_exec = spy
from cookhouse.cli import main
main({arguments!r})
"""
REFUSE = "from cookhouse.errors import InputError; raise InputError('that is enough')"


def called(
    folder: Path, arguments: Sequence[str], *, instead: str = "", then: str = "", **environ: str
) -> tuple[subprocess.CompletedProcess[str], dict[str, Any] | None]:
    """What a command did in a folder, and the engine that it started, if it did."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TINKER_")}
    code = SPY.format(heavy=HEAVY, arguments=list(arguments), instead=instead, then=then)
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, env=kept | environ, capture_output=True, text=True, check=False
    )
    started = folder / "started.json"
    return done, json.loads(started.read_text()) if started.exists() else None


@pytest.mark.parametrize(
    "arguments",
    [
        ["run", "supervised", "max_steps=1", "log_path=mine"],
        ["run", "rlhf", "log_path=mine"],
        ["eval", "log_path=mine"],
        ["sample", "cookhouse/tiny", "hello"],
        ["chat"],
    ],
    ids=lambda words: " ".join(words[:2]),
)
def test_the_engine_starts_before_anything_heavy_is_loaded(arguments: list[str], tmp_path: Path) -> None:
    """Would catch seconds that the client imports for while no engine starts."""
    done, started = called(tmp_path, arguments, instead=REFUSE)
    assert done.stderr == "error: that is enough\n"
    assert done.returncode == 2
    assert started is not None
    assert started["loaded"] == []
    assert [path.name for path in tmp_path.iterdir()] == ["started.json"]


@pytest.mark.parametrize(
    ("arguments", "environ"),
    [
        (["run", "supervised", "--dry-run", "log_path=mine"], {}),
        (["run", "supervised", "batch_size=none"], {}),
        (["run", "supervised", "base_url=http://127.0.0.1:1", "log_path=mine"], {"TINKER_API_KEY": "tml-test"}),
        (
            ["sample", "cookhouse/tiny", "hello"],
            {"TINKER_API_KEY": "tml-test", "TINKER_BASE_URL": "http://127.0.0.1:1"},
        ),
        (["sample", "nobody", "hello"], {}),
    ],
    ids=["dry run", "bad config", "served", "sample served", "bad weights"],
)
def test_no_engine_starts_where_none_is_to_serve(arguments: list[str], environ: dict[str, str], tmp_path: Path) -> None:
    """Would catch an engine that a dry run, a misspelled setting or a run on another service starts."""
    _, started = called(tmp_path, arguments, **environ)
    assert started is None


def test_a_run_that_its_data_refuses_leaves_no_process_and_no_folder(tmp_path: Path) -> None:
    """Would catch an engine that outlives a refused run, or the folder of its state."""
    (tmp_path / "bad.jsonl").write_text("no JSON\n")
    done, started = called(tmp_path, ["run", "supervised", "dataset_path=bad.jsonl", "log_path=mine"])
    assert done.returncode == 2, done.stderr
    assert "bad.jsonl" in done.stderr
    assert started is not None
    assert not is_alive(started["pid"])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bad.jsonl", "started.json"]


def test_ctrl_c_before_there_is_a_service_leaves_no_process_and_no_folder(tmp_path: Path) -> None:
    """Would catch an engine that nobody ends where the client is stopped while it loads."""
    then = "import signal; signal.raise_signal(signal.SIGINT)"
    done, started = called(tmp_path, ["run", "supervised", "max_steps=1", "log_path=mine"], then=then)
    assert done.returncode == 130, done.stderr
    assert started is not None
    assert not is_alive(started["pid"])
    assert not (tmp_path / "mine").exists()


def test_a_client_that_is_killed_while_it_loads_leaves_no_process(tmp_path: Path) -> None:
    """Would catch an engine that waits for ever to be told what to serve."""
    then = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
    _, started = called(tmp_path, ["sample", "cookhouse/tiny", "hello"], then=then)
    assert started is not None
    deadline = time.monotonic() + 60
    while is_alive(started["pid"]) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not is_alive(started["pid"])


def is_alive(pid: int) -> bool:
    """Whether a process runs; one that only waits to be reaped does not."""
    try:
        return (Path("/proc") / str(pid) / "stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False
