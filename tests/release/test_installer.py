"""What `make run` installs with: programs of our own stand in for pip, `uv` and cookhouse, and note what they are told.

Catches `uv` used unasked, pip beside it, a build of torch that nobody chose, and a download before a word about it.
"""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RECORDS = '#!/bin/sh\necho "%s $*" >> "$TOLD"\n'
CONSTRAINED = "--constraint constraints.txt"


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path)
    for name in ("path/uv", ".venv/bin/python", ".venv/bin/cookhouse"):
        program = tmp_path / name
        program.parent.mkdir(parents=True, exist_ok=True)
        program.write_text(RECORDS % program.name)
        program.chmod(0o755)
    return tmp_path


def make(clone: Path, *words: str) -> tuple[subprocess.CompletedProcess[str], list[str]]:
    told = clone / "told"
    told.touch()
    # What a `make` around this test hands down would otherwise count here.
    environment = {
        name: value for name, value in os.environ.items() if name not in ("ARGS", "INSTALLER", "MAKEFLAGS", "MFLAGS")
    }
    environment |= {"PATH": f"{clone / 'path'}{os.pathsep}{os.environ['PATH']}", "TOLD": str(told)}
    done = subprocess.run(["make", *words], cwd=clone, env=environment, capture_output=True, text=True, check=False)
    return done, told.read_text().splitlines()


def test_uv_takes_the_build_of_torch_that_fits(clone: Path) -> None:
    done, told = make(clone, "run", "INSTALLER=uv")
    assert done.returncode == 0, done.stderr
    uv = f"uv pip install --quiet --python .venv/bin/python --torch-backend=auto {CONSTRAINED}"
    assert told == [f"{uv} torch", f"{uv} --editable .[engine]", "cookhouse run supervised"]


def test_pip_installs_unless_uv_is_asked_for_and_tells_the_build_first(clone: Path) -> None:
    done, told = make(clone, "run")
    assert done.returncode == 0, done.stderr
    pip = f"python -m pip install --quiet --disable-pip-version-check {CONSTRAINED}"
    upgrade, *asked, torch, ours, run = told
    assert upgrade == f"{pip} --upgrade pip"
    # The two ends of a pipe, in any order.
    assert set(asked) == {f"{pip} --dry-run --report - torch", "python -m scripts.torch_build"}
    assert (torch, ours, run) == (f"{pip} torch", f"{pip} --editable .[engine]", "cookhouse run supervised")


def test_once_installed_nothing_is_installed_again(clone: Path) -> None:
    make(clone, "run", "INSTALLER=uv")
    _, told = make(clone, "run")
    assert told[-2:] == ["cookhouse run supervised"] * 2


def test_another_installer_is_refused_with_those_there_are(clone: Path) -> None:
    done, told = make(clone, "run", "INSTALLER=conda")
    assert done.returncode != 0
    assert "INSTALLER=conda: there is pip, which is the default, and uv" in done.stderr
    assert told == []
