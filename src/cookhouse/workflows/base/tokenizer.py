"""The tokenizer of a run, and the renderer over it."""

import asyncio
from functools import partial

from cookhouse.chat import Renderer
from cookhouse.data import build_renderer
from cookhouse.settings import TrainingSettings
from cookhouse.settings.defaults import default_of
from cookhouse.workflows.base.run import TrainingState
from cookhouse.workflows.stages.stage import stage


@stage(doing="loading the tokenizer", reads=("config", "notes"), writes=("renderer", "notes"))
async def init_tokenizer(state: TrainingState) -> None:
    """Load the tokenizer, and the renderer over it."""
    state.notes += format_notes(state.config)
    state.renderer = await load_renderer(state.config, state.config.renderer_name)


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
