"""What `cookhouse new` writes works as it is."""

import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cookhouse.cli.main import app
from cookhouse.cli.new import Kind
from cookhouse.errors import InputError


def write(folder: Path, *words: str) -> str:
    done = CliRunner().invoke(app, ["new", *words, "--folder", str(folder)], catch_exceptions=False)
    return done.output


@pytest.mark.parametrize("kind", list(Kind))
def test_an_example_passes_its_own_test(tmp_path: Path, kind: Kind) -> None:
    """Catches an example that the code has outgrown: the first thing that a user of it would see is an error."""
    said = write(tmp_path, kind, "mine")
    assert "cookhouse run" in said
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_mine.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_what_is_there_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "test_mine.py").write_text("mine")
    with pytest.raises(InputError, match="exists and is left as it is"):
        write(tmp_path, "recipe", "mine")
    assert [path.name for path in tmp_path.iterdir()] == ["test_mine.py"]


@pytest.mark.parametrize("name", ["../mine", "a-b", "class", "a.py"])
def test_a_name_that_is_none_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match="cannot name a Python file"):
        write(tmp_path, "recipe", name)
    assert not list(tmp_path.iterdir())
