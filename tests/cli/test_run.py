"""How the run command speaks of itself, and asks."""

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from cookhouse.cli import run


def test_the_program_is_named_as_it_was_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "my tools" / "cookhouse"
    script.parent.mkdir()
    script.write_text("#!/bin/sh\n")
    script.chmod(0o755)
    monkeypatch.setattr(sys, "argv", [str(script), "run"])
    monkeypatch.setenv("PATH", os.defpath)
    monkeypatch.chdir(tmp_path)
    assert run.program() == "'my tools/cookhouse'"
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    assert run.program() == f"'{script}'"
    monkeypatch.setenv("PATH", str(script.parent))
    assert run.program() == "cookhouse"


def test_a_module_is_named_with_the_python_that_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["/x/cookhouse/__main__.py"])
    monkeypatch.setenv("PATH", "/nowhere")
    assert run.program() == f"{sys.executable} -m cookhouse"
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent))
    assert run.program() == (
        "python -m cookhouse" if Path(sys.executable).name == "python" else f"{sys.executable} -m cookhouse"
    )


def typed(monkeypatch: pytest.MonkeyPatch, *answers: str) -> None:
    left = list(answers)
    reply: Callable[[str], str] = lambda _: left.pop(0)  # noqa: E731
    monkeypatch.setattr("typer.prompt", reply)


@pytest.mark.parametrize(
    ("answers", "chosen"), [(["delete"], "delete"), (["RES "], "resume"), (["", "x", "r", "ra"], "raise")]
)
def test_asking_goes_on_until_the_answer_is_clear(
    answers: list[str], chosen: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    typed(monkeypatch, *answers)
    assert run._ask("runs/x exists; what now?") == chosen
