"""`cookhouse sample`: ask a run, any other weights or a base model once."""

import asyncio
import shlex
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from cookhouse.assets import TINY_MODEL
from cookhouse.cli.models.commands import Registry
from cookhouse.cli.run import program
from cookhouse.cli.sampling_options import (
    MaxTokens,
    ModelOption,
    RendererOption,
    Seed,
    Temperature,
    TopP,
    WeightsArgument,
    note_of,
)
from cookhouse.errors import InputError, UnknownNameError, printable
from cookhouse.service.sampling.chat_model import SamplingOptions
from cookhouse.service.sampling.target import Target, find_target

if TYPE_CHECKING:
    from cookhouse.chat import Message


def sample(
    weights: WeightsArgument = None,
    prompt: Annotated[str | None, typer.Argument(help="What to ask; without it, standard input.")] = None,
    model: ModelOption = None,
    renderer: RendererOption = None,
    system: Annotated[str | None, typer.Option(help="System message.")] = None,
    max_tokens: MaxTokens = 256,
    temperature: Temperature = 0.0,
    top_p: TopP = 1.0,
    seed: Seed = None,
    registry: Registry = None,
) -> None:
    """Ask a run, any other weights or a base model once; `cookhouse chat` holds a conversation.

    The first word names the weights, the second is the prompt:

    \b
      cookhouse sample runs/first "What is 2 + 3?"
    """  # noqa: D301  \b keeps lines as they are
    try:
        target = find_target(weights, model, renderer, registry)
    except UnknownNameError as error:
        raise _with_command(error, prompt, model) from error
    draw = SamplingOptions(max_tokens=max_tokens, temperature=temperature, top_p=top_p, seed=seed)
    if prompt is None and sys.stdin.isatty():
        again = f"{program()} sample {shlex.quote(weights or model or TINY_MODEL)}"
        raise InputError(
            f'nothing to ask: give a prompt, as in {again} "a question"; `{program()} chat` holds a conversation'
        )
    question = sys.stdin.read().strip() if prompt is None else prompt
    if not question:
        raise InputError("nothing to ask: give a prompt as the second word or on standard input")
    asyncio.run(_sample(target, draw, system, question))


def _with_command(error: UnknownNameError, prompt: str | None, model: str | None) -> InputError:
    """Error for a first word that names no weights: it may be the prompt."""
    from cookhouse.runs.listing.weights import trained_runs

    word = error.name
    is_sentence = " " in word
    if prompt is not None and not is_sentence:
        return error
    weights = prompt or model or next(iter(error.near or trained_runs()), TINY_MODEL)
    command = f"{program()} sample {shlex.quote(weights)} {shlex.quote(word)}"
    if is_sentence:
        return InputError(f"{word!r} names no weights; they come before the prompt: {command}")
    return InputError(f"{error}; a prompt comes second: {command}")


async def _sample(target: Target, draw: SamplingOptions, system: str | None, question: str) -> None:
    from cookhouse.service.sampling.sampling_service import SamplingService

    async with SamplingService(say=lambda text: typer.echo(text, err=True)) as service:
        chat_model = await service.chat_model(target, draw)
        from cookhouse.training import service_errors

        asked: list[Message] = [] if system is None else [{"role": "system", "content": system}]
        with service_errors("sampling"):
            answer = await chat_model.answer([*asked, {"role": "user", "content": question}])
    if (note := note_of(answer)) is not None:
        typer.echo(f"note: {note}", err=True)
    typer.echo(printable(answer.text, keep="\n\t") if sys.stdout.isatty() else answer.text)
