"""Flags of what is sampled from and how, the same for `sample` and `chat`."""

from typing import Annotated, TypeAlias

import typer

from cookhouse.cli.runs.names import NAMING, complete_run
from cookhouse.service.sampling.chat_model import ChatAnswer

WeightsArgument: TypeAlias = Annotated[
    str | None,
    typer.Argument(
        metavar="WEIGHTS",
        help=f"A run ({NAMING}), meaning its best checkpoint if it keeps that, else its last; a tinker:// path; a "
        "registered model such as sums@1; a PEFT folder; or a base model. Without it, the base model of --model.",
        autocompletion=complete_run,
        show_default=False,
    ),
]
ModelOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--model",
        "-m",
        help="Base model; default: the one that WEIGHTS were trained on. Needed where nothing on this machine tells.",
        show_default="cookhouse/tiny without WEIGHTS",
    ),
]
RendererOption: TypeAlias = Annotated[
    str | None, typer.Option("--renderer", help="Chat format; default: the run's, else the model's own.")
]
MaxTokens: TypeAlias = Annotated[int, typer.Option(min=1, help="Tokens to sample at most.")]
Temperature: TypeAlias = Annotated[float, typer.Option(min=0.0, help="0 takes the likeliest token each time.")]
TopP: TypeAlias = Annotated[float, typer.Option(min=0.0, max=1.0, help="Share of probability to sample from.")]
Seed: TypeAlias = Annotated[int | None, typer.Option(help="Seed of the draw; default: a fresh one.")]


def note_of(answer: ChatAnswer) -> str | None:
    """Note on how an answer ended, with the flag that would let it go on; None: it ended by itself."""
    return f"{answer.note} (--max-tokens)" if answer.is_full else answer.note
