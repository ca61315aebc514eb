"""A person with an empty home and a folder in it."""

import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.journeys.journey import Journey
from tests.journeys.terminal import Terminal, variables_of_a_person


@pytest.fixture
def begin() -> Iterator[Callable[..., Journey]]:
    """Makes a journey in an empty folder. Its path is short, so that lines break as at home."""
    home = Path(tempfile.mkdtemp(prefix="ada", dir="/tmp"))
    terminals = []

    def made(name: str, title: str, folder: str, **variables: str) -> Journey:
        (home / folder).mkdir()
        terminal = Terminal(home / folder, {**variables_of_a_person(home), **variables})
        terminals.append(terminal)
        return Journey(name, title, terminal, home)

    yield made
    for terminal in terminals:
        terminal.close()
    shutil.rmtree(home, ignore_errors=True)


@pytest.fixture
def write_transcripts(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--write-transcripts"))
