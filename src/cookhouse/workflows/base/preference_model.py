"""Whether a preference model is asked in the way in which it was trained, before anything is opened."""

import json
from collections.abc import Mapping
from pathlib import Path

from cookhouse.envs import preference_format
from cookhouse.errors import InputError
from cookhouse.registry import ModelRegistry, names_registered_model
from cookhouse.runs.names import CONFIG_FILE, RUNS_FOLDER
from cookhouse.settings import JudgeSettings
from cookhouse.weights.names import names_weights, run_that_saved
from cookhouse.weights.peft_folders import adapted_model, peft_folder
from cookhouse.workflows.base.run import TrainingState
from cookhouse.workflows.stages.stage import stage


@stage(reads=("config",), uses=("registry",))
async def check_preference_model(state: TrainingState) -> None:
    """Refuse a preference model of another base model or chat format than those that it would be asked in."""
    config, context = state.config, state.context
    assert isinstance(config, JudgeSettings)
    if config.preference_model is None or context.adapters.completer is not None:
        return
    base, chat_format = preference_format(config)
    if not names_weights(config.preference_model) and config.preference_model != base:
        raise InputError(
            f"preference_model {config.preference_model} names no weights, and as a base model it would be asked as "
            f"{base} is; give a run folder, a tinker:// path or a registered model, or set "
            f"preference_base_model={config.preference_model}"
        )
    among = (context.folder.path.parent, RUNS_FOLDER)
    trained = _trained(config.preference_model, among, context.adapters.registry)
    for what, is_asked, setting in (
        ("model_name", base, "preference_base_model"),
        ("renderer_name", chat_format, "preference_renderer"),
    ):
        was = trained.get(what)
        if was is not None and is_asked is not None and was != is_asked:
            kind = "the base model" if what == "model_name" else "the chat format"
            raise InputError(
                f"preference_model {config.preference_model} was trained with {kind} {was}, and would be asked with "
                f"{is_asked}, whose tokens mean other things to it; set {setting}={was}"
            )


def _trained(name: str, among: tuple[Path, ...], registry: ModelRegistry | None) -> Mapping[str, object]:
    """Base model and chat format that weights were trained with, as far as anybody here knows."""
    if (adapter := peft_folder(name)) is not None:
        return {"model_name": adapted_model(adapter)}
    run = run_that_saved(name, among=among, registry=registry)
    if run is not None:
        try:
            return dict(json.loads((run / CONFIG_FILE).read_text(encoding="utf-8"))["config"])
        except (OSError, ValueError, KeyError, TypeError):
            return {}
    if registry is not None and not name.startswith("tinker://") and names_registered_model(name):
        return {"model_name": registry.get(name).base_model}
    return {}
