"""Judge of answers: a preference model by name, opened once and shared by all that a run asks it."""

import asyncio
import hashlib

from cookhouse.chat import Comparison, ComparisonRenderer
from cookhouse.data import build_renderer
from cookhouse.envs.second_model import OpenSampler, completer_of
from cookhouse.errors import InputError
from cookhouse.grading import CompleterPreferenceModel, GenerativePreferenceModel, Judgment, PreferenceModel
from cookhouse.models.catalog import context_tokens
from cookhouse.settings import JudgeSettings

_MAX_REMEMBERED = 100_000
"""Judgments; one is some hundred bytes."""


class SharedPreferenceModel:
    """A preference model for all groups of a run, asked about so many comparisons at a time, and about each once: its
    weights do not change. What failed is asked again.
    """

    def __init__(self, model: PreferenceModel, *, max_concurrent: int) -> None:
        self._model = model
        self._slots = asyncio.Semaphore(max_concurrent)
        self._remembered: dict[bytes, Judgment] = {}

    async def __call__(self, comparison: Comparison) -> Judgment:
        """As the model's own."""
        key = hashlib.blake2b(repr(comparison).encode(), digest_size=16).digest()
        if (known := self._remembered.get(key)) is not None:
            return known
        async with self._slots:
            judgment = await self._model(comparison)
        if len(self._remembered) < _MAX_REMEMBERED:
            self._remembered[key] = judgment
        return judgment


async def open_preference_model(config: JudgeSettings, open_sampler: OpenSampler | None) -> PreferenceModel:
    """The model that a config names to compare answers, asked in its own chat format.

    Raises:
        InputError: none is named, or there is nobody to ask for it.
    """
    name = config.preference_model
    if name is None:
        raise InputError(
            "preference_model is not set, and something must compare answers; train one with "
            "`cookhouse run preference_model`, and name its run directory"
        )
    if open_sampler is None:
        raise InputError(f"preference_model is {name!r}, and there is no service to ask it at")
    return SharedPreferenceModel(
        await _opened(config, name, open_sampler), max_concurrent=config.max_concurrent_comparisons
    )


async def _opened(config: JudgeSettings, name: str, open_sampler: OpenSampler) -> PreferenceModel:
    completer = completer_of(name, open_sampler)
    if completer is not None:
        return CompleterPreferenceModel(completer)
    base, chat_format = preference_format(config)
    renderer = ComparisonRenderer(build_renderer(base, chat_format, force=config.force_renderer))
    limit = await asyncio.to_thread(context_tokens, base)
    return GenerativePreferenceModel(renderer, await open_sampler(name), context_tokens=limit)


def preference_format(config: JudgeSettings) -> tuple[str, str | None]:
    """Base model and chat format in which the preference model is asked; None: the base model's own."""
    base = config.preference_base_model or config.model_name
    return base, config.preference_renderer or (config.renderer_name if base == config.model_name else None)
