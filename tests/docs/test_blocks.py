"""Every block of code in the pages does what its page says, on the local engine."""

import gc
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.docs.blocks import Block, Command, blocks_of, commands_of
from tests.docs.reader import Reader, read

ROOT = Path(__file__).parents[2]
PAGES = [
    page
    for page in sorted(ROOT.glob("docs/**/*.md"))
    if any(blocks_of(page)) and page.parent.name != "journeys"  # those are written by their own tests
]


@pytest.fixture(scope="session")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, str]]:
    """The variables of one served engine for all pages: each run alone would start its own."""
    folder = tmp_path_factory.mktemp("served")
    environment = {**os.environ, "XDG_STATE_HOME": str(folder)}
    command = [sys.executable, "-m", "cookhouse", "serve", "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, text=True)
    assert process.stdout is not None
    variables = {"XDG_STATE_HOME": str(folder)}
    for line in process.stdout:
        if match := re.match(r"\s*export (\w+)=(\S+)", line):
            variables[match[1]] = match[2]
        if "OPENAI_API_KEY" in variables:
            break
    yield variables
    process.terminate()
    process.wait(60)
    process.stdout.close()


def case(page: Path) -> Any:
    """A page to follow. Another library may warn of its own code."""
    needs_more = any("needs" in (block.told or "").split() for block in blocks_of(page))
    ignored = ("ignore::DeprecationWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
    marks = [pytest.mark.filterwarnings(*ignored)] if needs_more else []
    return pytest.param(page, id=str(page.relative_to(ROOT / "docs")), marks=marks)


@pytest.mark.slow
@pytest.mark.parametrize("page", [case(page) for page in PAGES])
def test_what_a_page_says_works(
    page: Path,
    service: Mapping[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name, value in {**service, "COLUMNS": "160", "PYTHONPATH": str(tmp_path)}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "argv", ["cookhouse"])
    monkeypatch.chdir(tmp_path)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    reader = Reader(page, capsys, monkeypatch)
    for block in blocks_of(page):
        if block.told is not None and block.told.startswith("needs "):
            pytest.importorskip(block.told.removeprefix("needs "), reason="of an extra: make test-harness")
        reader.follow(block)
    gc.collect()  # what another library has left open is told of here, where it is ignored


def test_a_page_is_read_as_a_person_reads_it(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "A page.\n\n<!-- tests: max_steps=2 -->\n```sh\n# first\nA=1 cookhouse run rl \\\n  x=1  # so\n```\n\n"
        "```python sums.py\nX = 1\n```\n\n```{literalinclude} other.py\n```\n"
    )
    shell, file = blocks_of(page)
    assert shell == Block(
        language="sh", file=None, text="# first\nA=1 cookhouse run rl \\\n  x=1  # so\n", line=5, told="max_steps=2"
    )
    assert [*commands_of(shell.text)] == [Command(words=("cookhouse", "run", "rl", "x=1"), variables={"A": "1"})]
    assert (file.file, file.text, file.told) == ("sums.py", "X = 1\n", None)


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("sample --rum 1", "No such option"),
        ("run rl steps=2", "unknown setting of recipe rl"),
        ("runs shaw 1", "no command shaw"),
        ("serve --port x", "valid integer"),
        ("--instal-completion", "no option --instal-completion"),
        ("chat --rum 1 < questions.txt", "No such option"),
    ],
)
def test_a_command_that_is_only_read_is_still_checked(words: str, reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Exception, match=reason):
        read(words.split(), monkeypatch)
