"""Commands and names that stand inside a sentence are those that there are. Catches an option that was renamed, and a
class that is called otherwise, where no block of code is run.
"""

import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer

from cookhouse.cli.main import app
from cookhouse.recipes import RECIPES

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *(page for page in sorted((ROOT / "docs").rglob("*.md")) if "journeys" not in page.parts)]
NAMES_OF_OTHERS = ("from-tinker-cookbook.md", "metrics.md")
"""Pages about names that are not ours."""
OPTIONS_OF_OTHERS = {
    "--device",  # of pytest, here
    *("--model_args", "--batch_size", "--tasks", "--apply_chat_template"),  # of lm-evaluation-harness
    *("--min-worker-port", "--max-worker-port", "--head"),  # of Ray
    "--launcher",  # of axolotl
}
OTHERS = {"EarlyStoppingCallback", "NonFiniteInTensor", "PromptTooLong", "RayService"}
"""Classes of other libraries, and codes of the hosted service."""
_FENCE = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)


def _spans(page: Path) -> Iterator[str]:
    text = _FENCE.sub("", page.read_text(encoding="utf-8"))
    for found in re.finditer(r"(?<![`\w}])(`+)([^`]+?)\1(?!`)", text):
        yield " ".join(found[2].split())


@cache
def _commands() -> dict[tuple[str, ...], set[str]]:
    """The options of each command, by its words."""
    found: dict[tuple[str, ...], set[str]] = {}

    def walk(command: Any, words: tuple[str, ...]) -> None:
        options = {name for option in command.params for name in (*option.opts, *option.secondary_opts)}
        found[words] = {name for name in options if name.startswith("-")} | {"--help", "-h"}
        if hasattr(command, "list_commands"):
            context = command.context_class(command, info_name="x")
            for name in command.list_commands(context):
                walk(command.get_command(context, name), (*words, name))

    walk(typer.main.get_command(app), ())
    return found


def _faults_of_command(words: list[str]) -> list[str]:
    place: tuple[str, ...] = ()
    for word in words:
        if (*place, word) not in _commands():
            break
        place = (*place, word)
    groups = {words[:-1] for words in _commands() if words}
    rest = words[len(place) :]
    named = rest and re.fullmatch(r"[a-z][a-z_-]+", rest[0]) and place in groups and place != ("render",)
    if place == ("run",) and rest:
        named = named and rest[0] not in RECIPES.names()
    known = _commands()[place]
    if place in (("run",), ("sweep",)) or place == ():
        known = known.union(*_commands().values())
    options = [word.partition("=")[0] for word in rest if word.startswith("--") and word != "--"]
    return [*(rest[:1] if named else []), *(option for option in options if option not in known)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_in_sentences_are_commands(page: Path) -> None:
    every_option = set().union(*_commands().values()) | OPTIONS_OF_OTHERS
    faults: list[str] = []
    for span in _spans(page):
        if span.startswith("cookhouse "):
            try:
                words = shlex.split(span)[1:]
            except ValueError:
                words = span.split()[1:]
            words = words[: words.index("--")] if "--" in words else words
            faults += [f"{span}: {fault}" for fault in _faults_of_command(words)]
        elif re.fullmatch(r"--[a-z][\w-]*( .*|=.*)?", span) and re.split("[ =]", span)[0] not in every_option:
            faults.append(span)
    assert faults == []


@cache
def _sources() -> set[str]:
    folders = ("src", "examples", "scripts", "tests", "bench")
    files = [file for folder in folders for file in (ROOT / folder).rglob("*.py") if file != Path(__file__)]
    code = "\n".join(file.read_text(encoding="utf-8") for file in files)
    plain = re.sub(r'""".*?"""|"[^"\n]*"|#[^\n]*', "", code, flags=re.DOTALL)
    return {*re.findall(r"\b[A-Z]\w+", plain), *re.findall(r"^class (\w+)", code, re.MULTILINE)}


@pytest.mark.parametrize(
    "page", [page for page in PAGES if page.name not in NAMES_OF_OTHERS], ids=lambda page: page.name
)
def test_classes_in_sentences_are_classes(page: Path) -> None:
    own = set(re.findall(r"\w+", " ".join(found[0] for found in _FENCE.finditer(page.read_text(encoding="utf-8")))))
    named = {span for span in _spans(page) if re.fullmatch(r"[A-Z][a-z]+[A-Za-z]*", span)}
    assert sorted(named - own - _sources() - OTHERS) == []
