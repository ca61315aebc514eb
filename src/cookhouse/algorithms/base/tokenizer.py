"""The tokenizer of a run, the renderer over it, and examples as text."""

import asyncio
import json
from collections.abc import Sequence
from functools import partial

from cookhouse.algorithms.stages.stage import stage
from cookhouse.algorithms.stages.state import RunContext
from cookhouse.chat import Renderer
from cookhouse.data import Example, build_renderer
from cookhouse.evals import preview_example
from cookhouse.models.tokenizers import get_tokenizer
from cookhouse.runs import Preview
from cookhouse.settings import TrainingSettings
from cookhouse.settings.defaults import default_of
from cookhouse.telemetry import events


@stage(doing="loading the tokenizer")
async def init_tokenizer(context: RunContext, config: TrainingSettings) -> Renderer:
    """Load the tokenizer, and the renderer over it."""
    context.notes += format_notes(config)
    return await load_renderer(config, config.renderer_name)


def format_notes(config: TrainingSettings) -> list[str]:
    """Note on a chat format that is that of the weights with which the run begins, where it would be another without
    them.
    """
    begun, name = config.load_checkpoint_path, config.renderer_name
    if begun is None or config.force_renderer or name == default_of(config, "renderer_name"):
        return []
    return [f"conversations are written in {name}, the chat format of {begun}, which the run begins with"]


async def load_renderer(config: TrainingSettings, name: str) -> Renderer:
    """The renderer of that name over the model's tokenizer.

    Raises:
        InputError: there is none, it does not fit the model, or the model has no tokenizer here.
    """
    return await asyncio.to_thread(partial(build_renderer, config.model_name, name, force=config.force_renderer))


def previews_of(examples: Sequence[Example], model_name: str) -> list[Preview]:
    """Examples as pieces of text, each with True where it is trained on."""
    tokenizer = get_tokenizer(model_name)
    return [preview_example(example, tokenizer) for example in examples]


def tell_previews(context: RunContext, examples: Sequence[Example], model_name: str) -> None:
    """Report examples, for whoever watches the run."""
    for pieces in previews_of(examples, model_name):
        context.telemetry.event(events.DATA_PREVIEW, pieces=json.dumps(pieces))
