"""`cookhouse sample`: ask a base model, a checkpoint or the outcome of a run once."""

import asyncio
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from cookhouse.cli.models.commands import Registry
from cookhouse.cli.sampling.chat_model import Draw, MaxTokens, Seed, Temperature, TopP
from cookhouse.cli.sampling.target import (
    CheckpointOption,
    ModelOption,
    RendererOption,
    RunOption,
    Target,
    find_target,
)
from cookhouse.errors import InputError
from cookhouse.printable import printable

if TYPE_CHECKING:
    from cookhouse.chat import Message


def sample(
    prompt: Annotated[str | None, typer.Argument(help="What to ask; without it, standard input.")] = None,
    run: RunOption = None,
    checkpoint: CheckpointOption = None,
    model: ModelOption = None,
    renderer: RendererOption = None,
    system: Annotated[str | None, typer.Option(help="System message.")] = None,
    max_tokens: MaxTokens = 256,
    temperature: Temperature = 0.0,
    top_p: TopP = 1.0,
    seed: Seed = None,
    registry: Registry = None,
) -> None:
    """Ask a base model, a checkpoint or a run once; `cookhouse chat` holds a conversation."""
    target = find_target(run, checkpoint, model, renderer, registry)
    draw = Draw(max_tokens=max_tokens, temperature=temperature, top_p=top_p, seed=seed)
    if prompt is None and sys.stdin.isatty():
        from cookhouse.cli.chat.commands import converse

        asyncio.run(converse(target, draw, system, registry))
        return
    question = sys.stdin.read().strip() if prompt is None else prompt
    if not question:
        raise InputError("nothing to ask: give a prompt as an argument or on standard input")
    asyncio.run(_sample(target, draw, system, question))


async def _sample(target: Target, draw: Draw, system: str | None, question: str) -> None:
    from cookhouse.cli.sampling.engine import Engine

    async with Engine(say=lambda text: typer.echo(text, err=True)) as engine:
        chat_model = await engine.chat_model(target, draw)
        from cookhouse.training import service_errors

        asked: list[Message] = [] if system is None else [{"role": "system", "content": system}]
        with service_errors("sampling"):
            answer = await chat_model.answer([*asked, {"role": "user", "content": question}])
    if answer.note is not None:
        typer.echo(f"note: {answer.note}", err=True)
    typer.echo(printable(answer.text, keep="\n\t") if sys.stdout.isatty() else answer.text)
