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


@pytest.mark.slow
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


def test_who_lacks_pytest_is_told_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a command that fails in an installation without the extras of developers."""
    monkeypatch.setattr("cookhouse.cli.new.find_spec", {}.get)
    said = write(tmp_path, "environment", "mine")
    first = next(line for line in said.splitlines() if line.startswith("first"))
    assert first.endswith("install pytest")
    assert said.index(first) < said.index("python -m pytest")


@pytest.mark.parametrize("kind", ["tools", "agent"])
def test_one_with_a_tool_says_how_to_warm_up(tmp_path: Path, kind: str) -> None:
    """Catches commands that do not fit the file, and a run by reward that begins from weights that nobody trained."""
    said = write(tmp_path, kind, "shop")
    warm_up, run = (line.split() for line in said.splitlines() if "cookhouse run" in line)
    source = (tmp_path / "shop.py").read_text().replace("\\\n", "")
    for words in (warm_up[2:], run[2:]):
        assert " ".join(words).replace(f"{tmp_path}/", "") in " ".join(source.split())
    assert f"load_checkpoint_path={dict(word.split('=') for word in warm_up[5:])['log_path']}" in run
