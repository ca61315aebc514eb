"""Where a browser comes from for the tests that drive pages, and what becomes of them without one."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.browser import browser

SCRIPT = Path(__file__).parents[1] / ".ci" / "chromium"


def machine(folder: Path, **programs: str) -> Path:
    """A folder of programs to be the whole path: shells, and some of a line each."""
    for name in ("bash", "env", "touch", "chmod"):
        (folder / name).symlink_to(shutil.which(name) or "")
    for name, line in programs.items():
        (folder / name.replace("_", "-")).write_text(f"#!/usr/bin/env bash\n{line}\n")
        (folder / name.replace("_", "-")).chmod(0o755)
    return folder


def installed(folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([SCRIPT], env={"PATH": str(folder)}, capture_output=True, text=True, check=False)


def test_one_that_is_there_is_taken(tmp_path: Path) -> None:
    # Catches a target that installs on every call.
    assert installed(machine(tmp_path, chromium="", apt_get="exit 1")).returncode == 0


def test_root_installs_it(tmp_path: Path) -> None:
    # Catches an installation that asks, or that begins without the lists of packages.
    place = tmp_path / "chromium"
    apt = (
        f'echo "$DEBIAN_FRONTEND $@" >> {tmp_path}/asked; [[ $1 == update ]] || {{ touch {place}; chmod +x {place}; }}'
    )
    assert installed(machine(tmp_path, id="echo 0", apt_get=apt)).returncode == 0
    assert (tmp_path / "asked").read_text() == " update\nnoninteractive install --yes chromium\n"


@pytest.mark.parametrize(
    ("programs", "said"),
    [({"id": "echo 1000", "apt_get": "exit 0"}, "as root: apt-get install chromium"), ({}, "no apt-get")],
    ids=["not root", "not Debian"],
)
def test_others_are_told_what_to_do(programs: dict[str, str], said: str, tmp_path: Path) -> None:
    done = installed(machine(tmp_path, **programs))
    assert (done.returncode, said in done.stderr) == (2, True)


def test_an_installation_that_brings_none_is_an_error(tmp_path: Path) -> None:
    done = installed(machine(tmp_path, id="echo 0", apt_get="exit 0"))
    assert (done.returncode, "there is none on the path" in done.stderr) == (2, True)


def test_without_one_a_test_is_skipped_or_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Catches driven tests that CI leaves out without a word.
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("COOKHOUSE_REQUIRE_BROWSER", raising=False)
    with pytest.raises(pytest.skip.Exception, match="make chromium"), browser():
        pass
    monkeypatch.setenv("COOKHOUSE_REQUIRE_BROWSER", "1")
    with pytest.raises(pytest.fail.Exception, match="make chromium"), browser():
        pass
