"""Check that a preference model is asked in the way in which it was trained, before anything is opened."""

from cookhouse.envs import preference_format
from cookhouse.errors import InputError
from cookhouse.runs.names import RUNS_FOLDER
from cookhouse.settings import JudgeSettings
from cookhouse.weights.names import BaseModelWeights, find_weights
from cookhouse.workflows.base.run import TrainingState
from cookhouse.workflows.stages.stage import stage


@stage(doing="looking up the preference model", reads=("config",), uses=("registry",))
async def check_preference_model(state: TrainingState) -> None:
    """Refuse a preference model of another base model or chat format than those that it would be asked in."""
    config, context = state.config, state.context
    assert isinstance(config, JudgeSettings)
    if config.preference_model is None or context.adapters.completer is not None:
        return
    base, chat_format = preference_format(config)
    named = find_weights(config.preference_model, context.adapters.registry)
    if isinstance(named, BaseModelWeights) and named.name != base:
        raise InputError(
            f"preference_model {config.preference_model} names no weights, and as a base model it would be asked as "
            f"{base} is; give a run directory, a tinker:// path or a registered model, or set "
            f"preference_base_model={config.preference_model}"
        )
    among = (context.folder.path.parent, RUNS_FOLDER)
    trained = named.origin(among)
    for kind, was, is_asked, setting in (
        ("the base model", trained.base_model, base, "preference_base_model"),
        ("the chat format", trained.renderer_name, chat_format, "preference_renderer"),
    ):
        if was is not None and is_asked is not None and was != is_asked:
            raise InputError(
                f"preference_model {config.preference_model} was trained with {kind} {was}, and would be asked with "
                f"{is_asked}, whose tokens mean other things to it; set {setting}={was}"
            )
