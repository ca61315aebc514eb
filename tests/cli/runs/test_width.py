"""No line of `cookhouse runs` is wider than its terminal, whatever runs are called."""

import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from collections.abc import Sequence
from pathlib import Path

import pytest
from rich.cells import cell_len
from tests.runs.kit import make_run

COOKHOUSE = [sys.executable, "-c", "import sys; sys.argv[0] = 'cookhouse'; from cookhouse.cli import main; main()"]


def told(columns: int, folder: Path, words: list[str]) -> list[str]:
    """The lines that a command prints on a terminal of so many columns, without their colors."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    plain = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
    process = subprocess.Popen(
        [*COOKHOUSE, *words],
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=theirs,
        cwd=folder,
        env={**plain, "TERM": "xterm-256color"},
    )
    os.close(theirs)
    found = b""
    while True:
        try:
            part = os.read(ours, 1 << 16)
        except OSError:  # the terminal is closed when the process ends
            part = b""
        if not part:
            break
        found += part
    os.close(ours)
    assert process.wait() == 0, found.decode()
    return re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", found.decode()).splitlines()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("wide")
    rows = [{"step": step, "test/a_metric_of_ones_own/with/parts": 0.123456 * step} for step in range(3)]
    runs = made / "runs"
    make_run(runs / ("a-run-of-a-sweep," * 5), recipe="a_recipe_of_ones_own", rows=rows, model_name="m/" * 30)
    make_run(runs / "料理の練習を何度も何度も繰り返す長い名前の実験", status="failed", number=1)
    make_run(runs / "whole", number=2, recipe="sweep")
    make_run(runs / "whole" / ("2-learning_rate=0.001," * 3), number=3, status="interrupted", rows=rows)
    for number in range(4, 12):
        make_run(runs / f"{number}", number=number)
    return made


def test_checkpoints_with_long_paths_are_one_below_the_other(tmp_path: Path) -> None:
    """Catches a table that the terminal breaks in the middle of words."""
    make_run(tmp_path / "runs" / "far")
    path = f"tinker://{'0123456789' * 4}:train:0/weights/final"
    line = {"name": "final", "epoch": 0, "batch": 2, "step": 7, "final": True, "sampler_path": None, "state_path": path}
    (tmp_path / "runs" / "far" / "checkpoints.jsonl").write_text(json.dumps(line) + "\n")
    lines = told(80, tmp_path, ["checkpoints", "list", "far"])
    assert lines[:3] == ["checkpoint:", path, "  step   7"]


PRUNE = ("prune", "--older-than", "1d")


@pytest.mark.parametrize(("columns", "words"), [(60, ()), (80, ()), (100, ()), (60, PRUNE)])
def test_no_line_is_wider_than_the_terminal(columns: int, words: Sequence[str], folder: Path) -> None:
    # Catches a terminal that breaks the lines of the table, so that no column stands below its name.
    lines = told(columns, folder, ["runs", *words])
    assert len(lines) > 10
    assert [line for line in lines if cell_len(line) > columns] == []
