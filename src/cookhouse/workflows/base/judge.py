"""The judge of answers that no rule can grade: opened by the setting `judge`, for evaluators and evaluations alike."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from cookhouse.adapters import Adapters
from cookhouse.envs import OpenSampler, open_preference_model
from cookhouse.errors import InputError
from cookhouse.evals.benchmarks.from_file import FileBenchmark
from cookhouse.evals.benchmarks.judge import Judge
from cookhouse.grading import PreferenceModel
from cookhouse.settings import JudgeSettings
from cookhouse.weights.names import find_weights


class JudgedConfig(Protocol):
    """Settings that are read here of a config."""

    @property
    def judge(self) -> str | None: ...
    @property
    def model_name(self) -> str: ...


def judges_asked(config: JudgedConfig, benchmarks: Sequence[object]) -> list[Judge]:
    """The judges that items of the benchmarks need. Raises `InputError` where the settings name nobody."""
    files = [each for each in benchmarks if isinstance(each, FileBenchmark) and each.judge.is_asked]
    if files and config.judge is None:
        raise InputError(
            f"{files[0].source} has rows with match=judge, and nobody is named who judges; set judge to a preference "
            "model, such as a run directory, or to a base model"
        )
    return [each.judge for each in files]


async def open_judge(
    config: JudgedConfig, open_sampler: OpenSampler, adapters: Adapters, among: Sequence[Path]
) -> PreferenceModel:
    """The preference model that the setting names, asked in the chat format that it was trained in. Raises
    `InputError` where it cannot be asked.
    """
    assert config.judge is not None
    if adapters.completer is not None:
        settings = JudgeSettings(model_name=config.model_name, preference_model=config.judge)
    else:
        trained = await asyncio.to_thread(find_weights(config.judge, adapters.registry).origin, among)
        base = trained.base_model or config.model_name
        settings = JudgeSettings(
            model_name=base, preference_model=config.judge, preference_renderer=trained.renderer_name
        )
    return await open_preference_model(settings, open_sampler)
