"""Somebody who types what a page says, in a folder of their own."""

import ast
import asyncio
import importlib
import inspect
import subprocess
import sys
import types
from collections.abc import Callable, Mapping
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest
import typer
from tests.docs.blocks import Block, Command, commands_of

from cookhouse.cli import main, run
from cookhouse.cli.main import app
from cookhouse.recipes import config_fields, find_recipe, settle

TAKE_SETTINGS = (("run",), ("runs", "resume"))
FEW = {"n_train_samples": 64, "num_samples": 1}
"""What shortens every run that a page shortens, where its recipe has these settings."""


class Reader:
    """Runs blocks one after the other, Python of a page in one namespace, and remembers what the last one printed."""

    def __init__(self, page: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        self._page, self._capsys, self._monkeypatch = page, capsys, monkeypatch
        self._module = types.ModuleType(f"page_{page.stem.replace('-', '_')}")
        monkeypatch.setitem(sys.modules, self._module.__name__, self._module)
        self._said = ""

    def follow(self, block: Block) -> None:
        """Do what a block asks for; whatever goes wrong names its line."""
        where = f"{self._page}:{block.line}"
        try:
            if block.told == "said":
                self._expect(block.text)
            elif block.file is not None:
                Path(block.file).parent.mkdir(parents=True, exist_ok=True)
                Path(block.file).write_text(block.text, encoding="utf-8")
            elif block.language == "python":
                self._said = ""
                self._python(block)
            elif block.language == "sh":
                self._said = ""
                for command in commands_of(block.text):
                    self._shell(command, block.told)
            elif block.language not in ("text", "json", "yaml", "toml"):
                raise AssertionError(f"a block in {block.language!r}: nobody knows how to follow it")
        except (Exception, SystemExit) as error:
            error.add_note(f"in the block at {where}, which printed:\n{self._said}{self._printed()}")
            raise

    def _expect(self, text: str) -> None:
        said = " ".join(self._said.split())
        for line in text.splitlines():
            assert " ".join(line.split()) in said, f"not printed: {line}"

    def _python(self, block: Block) -> None:
        code = "\n" * (block.line - 1) + block.text
        compiled = compile(code, str(self._page), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        if block.told == "only read":
            return
        done = eval(compiled, vars(self._module))
        if inspect.isawaitable(done):
            asyncio.run(_wait_for(done))
        self._said += self._printed()

    def _shell(self, command: Command, told: str | None) -> None:
        program, *words = command.words
        with self._monkeypatch.context() as patch:
            if "embedded" in (told or "").split():
                patch.delenv("TINKER_BASE_URL")
                patch.delenv("TINKER_API_KEY")
            for name, value in command.variables.items():
                patch.setenv(name, value)
            if told == "only read":
                if program == "cookhouse":
                    read(words, patch)
            elif program == "cookhouse":
                if takes_settings(words):
                    words = shortened(words, told or "")
                self._cookhouse(words, is_refused=told == "refused")
            elif program == "export":
                for word in words:
                    name, _, value = word.partition("=")
                    self._monkeypatch.setenv(name, value)
            elif program == "pytest":
                run_tests_of(words)
            else:
                self._said += started(program, words)

    def _cookhouse(self, words: list[str], *, is_refused: bool) -> None:
        with pytest.raises(SystemExit) as ended:
            main(words)
        self._said += self._printed()
        assert (ended.value.code != 0) == is_refused, f"cookhouse {' '.join(words)} ended with {ended.value.code}"

    def _printed(self) -> str:
        captured = self._capsys.readouterr()
        return captured.out + captured.err


def takes_settings(words: list[str]) -> bool:
    """Whether a command of these words takes settings of a run."""
    return any(tuple(words[: len(start)]) == start for start in TAKE_SETTINGS)


def shortened(words: list[str], told: str) -> list[str]:
    """The words of a command with the settings that the tests are told, in place of its own of the same names."""
    settings = [word for word in told.split() if "=" in word or word.startswith("-")]
    if settings and words[0] == "run":
        fields = {field.name for field in config_fields(find_recipe(words[1]))}
        settings += [f"{name}={value}" for name, value in FEW.items() if name in fields]
    instead = tuple(setting.partition("=")[0] + "=" for setting in settings)
    return [*(word for word in words if not word.startswith(instead or ("=",))), *settings]


def read(words: list[str], patch: pytest.MonkeyPatch) -> None:
    """Parse the words of a command, the settings of a run too, but not where it reads and writes; run nothing."""
    words = [*takewhile(lambda word: word not in ("<", ">"), words)]
    patch.setattr(run, "run_recipe", _settle)
    command: Any = typer.main.get_command(app)
    if words[0].startswith("-"):
        assert words[0] in {name for option in command.params for name in option.opts}, f"there is no option {words[0]}"
        return
    context = command.make_context("cookhouse", [], resilient_parsing=True)
    left = list(words)
    while is_group(command) and left:
        name, *left = left
        child = command.get_command(context, name)
        assert child is not None, f"there is no command {name}"
        rest, is_whole = ([], True) if is_group(child) else (left, False)
        command, context = child, child.make_context(name, rest, context, resilient_parsing=is_whole)
    if words[0] == "run":
        command.invoke(context)


def is_group(command: Any) -> bool:
    """Whether a command has others below it."""
    return hasattr(command, "get_command")


def _settle(name: str, layers: Mapping[str, Mapping[str, Any]], *rest: object) -> None:
    del rest
    settle(find_recipe(name), layers)


def run_tests_of(words: list[str]) -> None:
    """Run the tests of files, plain functions and methods; starting pytest for each would take most of the time."""
    for path in (word for word in words if not word.startswith("-")):
        assert Path(path).exists(), f"there is no file {path}"
        members = vars(importlib.import_module(Path(path).stem))
        suites = [thing() for name, thing in members.items() if name.startswith("Test") and isinstance(thing, type)]
        tests = [thing for name, thing in members.items() if name.startswith("test_")]
        tests += [getattr(suite, name) for suite in suites for name in dir(suite) if name.startswith("test_")]
        assert tests, f"{path} has no tests"
        for test in tests:
            test()


def started(program: str, words: list[str]) -> str:
    """What another program prints; of those that a page may name."""
    allowed: Mapping[str, Callable[[], list[str]]] = {
        "python": lambda: [sys.executable, *words],
        "cat": lambda: ["cat", *words],
        "ls": lambda: ["ls", *words],
        "inspect": lambda: [sys.executable, "-m", "inspect_ai", *words],
    }
    assert program in allowed, f"{program} is no program that the tests run; mark the block: <!-- tests: only read -->"
    done = subprocess.run(allowed[program](), capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, (
        f"exit code {done.returncode} of {program} {' '.join(words)}: {done.stdout}{done.stderr}"
    )
    return done.stdout + done.stderr


async def _wait_for(done: Any) -> None:
    await done
