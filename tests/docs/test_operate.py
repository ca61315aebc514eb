"""The unit for systemd in the page about operating a server."""

import re
import shlex
import shutil
import subprocess
import sys
from configparser import RawConfigParser
from pathlib import Path

import pytest
import typer
from tests.docs.blocks import blocks_of

from cookhouse.cli.main import app

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "operate.md"


@pytest.fixture
def text() -> str:
    [unit] = [block.text for block in blocks_of(PAGE) if block.file == "cookhouse.service"]
    return unit


def service_of(text: str) -> dict[str, str]:
    parser = RawConfigParser()
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    parser.read_string(text)
    return dict(parser["Service"])


def test_its_command_is_one_that_there_is(text: str) -> None:
    """Would catch an option that was renamed, and one that the command takes for something else."""
    command, subcommand, *words = shlex.split(service_of(text)["ExecStart"])
    assert (Path(command).name, subcommand) == ("cookhouse", "serve")
    root = typer.main.get_command(app)
    serve = root.get_command(root.make_context("cookhouse", [], resilient_parsing=True), "serve")  # type: ignore[attr-defined]
    given = serve.make_context("serve", words).params
    assert (given["state_dir"], given["drain_seconds"]) == (Path("/var/lib/cookhouse"), 30.0)
    assert not given["command"], "a word was taken for the command to serve beside"


def test_it_leaves_time_to_drain_and_shows_nobody_the_state(text: str) -> None:
    """Would catch a drain that systemd cuts, and bodies of requests that others on the machine can read."""
    service = service_of(text)
    drain_seconds = re.search(r"--drain-seconds (\d+)", service["ExecStart"])
    assert drain_seconds is not None
    assert int(service["TimeoutStopSec"]) > int(drain_seconds[1]) + 15
    assert f"--state-dir /var/lib/{service['StateDirectory']} " in service["ExecStart"]
    assert (service["StateDirectoryMode"], service["UMask"]) == ("0700", "0077")
    assert (service["Restart"], service["KillMode"], service["KillSignal"]) == ("always", "mixed", "SIGTERM")


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not here")
def test_systemd_understands_it(text: str, tmp_path: Path) -> None:
    """Would catch a setting that systemd ignores, such as one in the wrong section."""
    file = tmp_path / "cookhouse.service"
    file.write_text(text.replace("/opt/cookhouse/bin/cookhouse", sys.executable))
    done = subprocess.run(["systemd-analyze", "verify", str(file)], capture_output=True, text=True, timeout=60)
    assert [line for line in done.stderr.splitlines() if str(file) in line] == []
