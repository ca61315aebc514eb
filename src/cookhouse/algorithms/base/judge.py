"""The judge of answers that no rule can grade: opened by the setting `judge`, for evaluators and evaluations alike."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from cookhouse.adapters import Adapters
from cookhouse.algorithms.stages.stage import stage
from cookhouse.algorithms.stages.state import RunContext
from cookhouse.envs import OpenSampler, open_preference_model, preference_format
from cookhouse.errors import InputError
from cookhouse.evals.benchmarks.from_file import FileBenchmark
from cookhouse.evals.benchmarks.judge import Judge
from cookhouse.grading import PreferenceModel
from cookhouse.settings import JudgeSettings, TrainingSettings
from cookhouse.weights.names import BaseModelWeights, find_weights


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


@stage(doing="looking up the preference model", uses=("registry",))
async def check_preference_model(context: RunContext, config: TrainingSettings) -> None:
    """Refuse a preference model of another base model or chat format than those that it would be asked in."""
    assert isinstance(config, JudgeSettings)
    if config.preference_model is None or context.adapters.completer is not None:
        return
    base, chat_format = preference_format(config)
    named = find_weights(config.preference_model, context.registry)
    if isinstance(named, BaseModelWeights) and named.name != base:
        raise InputError(
            f"preference_model {config.preference_model} names no weights, and as a base model it would be asked as "
            f"{base} is; give a run directory, a tinker:// path or a registered model, or set "
            f"preference_base_model={config.preference_model}"
        )
    trained = named.origin(context.run_folders)
    for kind, was, is_asked, setting in (
        ("the base model", trained.base_model, base, "preference_base_model"),
        ("the chat format", trained.renderer_name, chat_format, "preference_renderer"),
    ):
        if was is not None and is_asked is not None and was != is_asked:
            raise InputError(
                f"preference_model {config.preference_model} was trained with {kind} {was}, and would be asked with "
                f"{is_asked}, whose tokens mean other things to it; set {setting}={was}"
            )
