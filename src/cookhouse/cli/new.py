"""`cookhouse new`: a small working example of something of one's own, with its test."""

import keyword
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from cookhouse.assets import new_file
from cookhouse.errors import InputError

_PLACEHOLDER = "NAME"
_NEXT = {
    "environment": "cookhouse run rl env={name}.py:build",
    "recipe": "cookhouse run {name}.py:RECIPE",
    "evaluator": "cookhouse run supervised evaluators={name}.py:build eval_every=20",
    "renderer": "cookhouse run supervised renderer_name={name}.py:QuestionAnswer",
}


class Kind(StrEnum):
    """What there are examples of."""

    ENVIRONMENT = "environment"
    RECIPE = "recipe"
    EVALUATOR = "evaluator"
    RENDERER = "renderer"


def new(
    kind: Annotated[Kind, typer.Argument(help="environment, recipe, evaluator or renderer.")],
    name: Annotated[str, typer.Argument(help="What to call it; NAME.py and test_NAME.py are written.")] = "",
    folder: Annotated[Path, typer.Option("--folder", help="Where to write the two files.")] = Path(),
) -> None:
    """Write a small working example of an environment, a recipe, an evaluator or a renderer, with its test."""
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
    typer.echo(f"\ntest it   python -m pytest {folder / f'test_{chosen}.py'}")
    typer.echo(f"run it    {_NEXT[kind].format(name=folder / chosen)}")
