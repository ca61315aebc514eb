"""`cookhouse new`: a small working example of something of one's own, with its test."""

import keyword
import shlex
from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from cookhouse.assets import new_file
from cookhouse.errors import InputError
from cookhouse.extras import installer

_PLACEHOLDER = "NAME"
_NEXT = {
    "environment": "cookhouse run rl env={name}.py:build",
    "tools": "cookhouse run rl env={name}.py:build renderer_name=qwen3_instruct load_checkpoint_path=runs/{stem}-calls "
    "max_tokens=40 max_turns=2 batch_size=8 group_size=8 learning_rate=3e-4 max_steps=12",
    "agent": "cookhouse run rl env=agent agent={name}.py:buy dataset_path={name}.py:tasks renderer_name=qwen3_instruct "
    "load_checkpoint_path=runs/{stem}-calls max_tokens=40 batch_size=8 group_size=8 learning_rate=3e-4 max_steps=12",
    "recipe": "cookhouse run {name}.py:RECIPE",
    "algorithm": "cookhouse run {name}.py:RECIPE max_steps=20",
    "evaluator": "cookhouse run supervised evaluators={name}.py:build eval_every=20",
    "renderer": "cookhouse run supervised renderer_name={name}.py:QuestionAnswer",
}
_BEFORE = {
    "tools": "cookhouse run supervised dataset_path={name}.py:calls renderer_name=qwen3_instruct batch_size=2 "
    "num_epochs=4 log_path=runs/{stem}-calls",
    "agent": "cookhouse run supervised dataset_path={name}.py:calls renderer_name=qwen3_instruct batch_size=2 "
    "num_epochs=4 log_path=runs/{stem}-calls",
}
"""What a model needs to have learned first."""


class Kind(StrEnum):
    """Kind of example."""

    ENVIRONMENT = "environment"
    TOOLS = "tools"
    AGENT = "agent"
    RECIPE = "recipe"
    ALGORITHM = "algorithm"
    EVALUATOR = "evaluator"
    RENDERER = "renderer"


def new(
    kind: Annotated[
        Kind,
        typer.Argument(
            help="environment, tools (an environment with a tool), agent, recipe, algorithm, evaluator or renderer."
        ),
    ],
    name: Annotated[str, typer.Argument(help="What to call it; NAME.py and test_NAME.py are written.")] = "",
    folder: Annotated[Path, typer.Option("--folder", help="Where to write the two files.")] = Path(),
) -> None:
    """Write a small working example of one kind, with its test."""
    chosen = name or f"my_{kind}"
    if not chosen.isidentifier() or keyword.iskeyword(chosen):
        raise InputError(f"{chosen!r} cannot name a Python file; use letters, digits and underscores, as in my_{kind}")
    texts = {
        folder / f"{chosen}.py": new_file(f"{kind}.py.txt"),
        folder / f"test_{chosen}.py": new_file(f"test_{kind}.py.txt"),
    }
    for path in texts:
        if path.exists():
            raise InputError(f"{path} exists and is left as it is; choose another name or --folder")
    for path, template in texts.items():
        path.write_text(template.read_text(encoding="utf-8").replace(_PLACEHOLDER, chosen), encoding="utf-8")
        typer.echo(f"wrote {path}")
    steps = {
        "first": "" if find_spec("pytest") else shlex.join([*installer(), "pytest"]),
        "test it": f"python -m pytest {folder / f'test_{chosen}.py'}",
        "warm up": _BEFORE.get(kind, ""),
        "run it": _NEXT[kind],
    }
    from cookhouse.telemetry import make_console, say, say_command

    console = make_console()
    say(console, "")
    for label, command in steps.items():
        if command:
            say_command(console, f"{label:<9}", command.format(name=folder / chosen, stem=chosen))
