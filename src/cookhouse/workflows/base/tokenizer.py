"""The tokenizer of a run, and the renderer over it."""

import asyncio
from functools import partial

from cookhouse.chat import Renderer
from cookhouse.data import build_renderer
from cookhouse.settings import TrainingSettings
from cookhouse.workflows.base.run import TrainingState
from cookhouse.workflows.stages.stage import stage


@stage(doing="loading the tokenizer", reads=("config",), writes=("renderer",))
async def init_tokenizer(state: TrainingState) -> None:
    """Load the tokenizer, and the renderer over it."""
    state.renderer = await load_renderer(state.config, state.config.renderer_name)


async def load_renderer(config: TrainingSettings, name: str) -> Renderer:
    """The renderer of that name over the model's tokenizer.

    Raises:
        InputError: there is none, it does not fit the model, or the model has no tokenizer here.
    """
    return await asyncio.to_thread(partial(build_renderer, config.model_name, name, force=config.force_renderer))
