"""A journey: what somebody types from an empty folder to the end, and its transcript as a page of Markdown."""

import json
import re
from importlib.metadata import distribution
from pathlib import Path
from urllib.parse import urlsplit

from tests.journeys.terminal import BOUND_SECONDS, Terminal

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "docs" / "journeys"
_LONGEST = 66
"""Lines of a command that a transcript shows; of more, those in the middle are left out, and counted."""


class Journey:
    """Commands in a terminal, files that are written and remarks between them, in the order of the transcript."""

    def __init__(self, name: str, title: str, terminal: Terminal, home: Path) -> None:
        self.name, self.terminal, self._home = name, terminal, home
        self._parts = [f"# {title}"]
        self._commands: list[str] = []

    @property
    def folder(self) -> Path:
        return self.terminal.folder

    def heading(self, text: str) -> None:
        self._parts.append(f"## {text}")

    def remark(self, text: str) -> None:
        """What a reader is told between commands: plain sentences, which hold for every time."""
        self._parts.append(" ".join(text.split()))

    def write(self, file: str, text: str, shown: str | None = None) -> None:
        """Write a file, as with an editor; the transcript has its text, or `shown` where it is long."""
        path = self.folder / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        language = {".py": "python", ".toml": "toml", ".yaml": "yaml"}.get(path.suffix, "text")
        self._parts.append(f"`{file}`:")
        self._parts.append(_block(language, shown if shown is not None else text))

    def run(self, command: str, seconds: float = BOUND_SECONDS, status: int = 0) -> str:
        """Type a command and wait for its end; what stood on the screen."""
        self.start(command)
        return self.end(seconds, status)

    def start(self, command: str) -> Terminal:
        """Type a command that is to be answered or interrupted; `end` waits for its end."""
        self._commands.append(command)
        self.terminal.start(command)
        return self.terminal

    def end(self, seconds: float = BOUND_SECONDS, status: int = 0) -> str:
        said = self.terminal.done(seconds, status)
        self._parts.append(_block("text", f"$ {self._commands[-1]}\n{_shortened(self._without_paths(said))}"))
        return said

    def transcript(self) -> str:
        return "\n\n".join(self._parts) + "\n"

    def check(self, *, write: bool) -> None:
        """Compare the commands with those of the committed transcript, or write it anew."""
        said = "".join(self.transcript().splitlines())
        assert str(self._home) not in said, (
            "a path of this machine is there, which the terminal broke: say it on one line"
        )
        page = PAGES / f"{self.name}.md"
        if write:
            page.parent.mkdir(exist_ok=True)
            page.write_text(self.transcript(), encoding="utf-8")
        committed = commands_of(page.read_text(encoding="utf-8")) if page.exists() else []
        assert committed == self._commands, (
            f"{page.relative_to(ROOT)} has other commands than its journey; write it anew with\n"
            f"pytest -m slow tests/journeys -k {self.name.replace('-', '_')} --write-transcripts"
        )

    def _without_paths(self, text: str) -> str:
        """With the paths that the person would have: a home, and a clone of the repository in it."""
        return text.replace(str(self._home), "/home/ada").replace(_clone(), "/home/ada/cookhouse")


def commands_of(page: str) -> list[str]:
    """The commands that a transcript shows."""
    return re.findall(r"^\$ (.*)$", page, re.MULTILINE)


def _clone() -> str:
    """The folder that cookhouse was installed from."""
    direct: dict[str, str] = json.loads(distribution("cookhouse").read_text("direct_url.json") or "{}")
    return urlsplit(direct.get("url", ROOT.as_uri())).path


def _block(language: str, text: str) -> str:
    return f"```{language}\n{text.rstrip()}\n```"


def _shortened(text: str) -> str:
    lines = text.splitlines()
    if len(lines) <= _LONGEST:
        return text
    head = _LONGEST * 3 // 4
    tail = _LONGEST - head
    return "\n".join([*lines[:head], f"[… {len(lines) - _LONGEST} lines]", *lines[-tail:]])
