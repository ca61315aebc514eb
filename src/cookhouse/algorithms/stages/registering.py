"""A run registers what it trained: with what it measured, where its weights are, and what they came from."""

import asyncio
import math
from collections.abc import Sequence

from cookhouse.algorithms.stages.state import RunContext
from cookhouse.registry import (
    Artifact,
    Descent,
    ModelRegistry,
    ModelVersion,
    NewModel,
    Query,
    config_sha256,
    read_artifact,
)
from cookhouse.runs import read_history
from cookhouse.telemetry import Values, events, ranked, split_values
from cookhouse.training import ServiceClient
from cookhouse.weights.checkpoints import Checkpoint
from cookhouse.weights.names import find_weights


def is_registered(context: RunContext) -> bool:
    """True if the run was given a name to register under, and there is a registry."""
    return context.folder.config.get("registered_model_name") is not None and context.registry is not None


async def register_run(
    context: RunContext, saved: Checkpoint, metrics: Values, descent: Descent, *, service: ServiceClient
) -> ModelVersion:
    """Register the weights of a run's last checkpoint; what a resumed run has registered before keeps its number. The
    service is asked for the checksum of weights that are not on this machine.

    Raises:
        InputError: the registry refused them, or cannot be written.
    """
    registry = context.registry
    assert registry is not None
    paths = [path for path in (saved.state_path, saved.sampler_path) if path is not None]
    artifacts = [await _artifact(context, path, service) for path in paths]
    new = await asyncio.to_thread(_new_model, context, artifacts, metrics, descent, registry)
    found = await asyncio.to_thread(registry.find, Query(name=new.name, artifact_path=new.artifact.path))
    before = [each for each in found if each.run_folder == new.run_folder]
    version = before[-1] if before else await asyncio.to_thread(registry.register, new)
    context.telemetry.event(events.MODEL_REGISTERED, model=version.id)
    return version


async def _artifact(context: RunContext, path: str, service: ServiceClient) -> Artifact:
    files = await asyncio.to_thread(context.files_of, path)
    ask = getattr(service, "sha256_of", None) if files is None else None
    digest = None if ask is None else await ask(path)
    return await asyncio.to_thread(read_artifact, path, files, digest)


def _new_model(
    context: RunContext, artifacts: Sequence[Artifact], metrics: Values, descent: Descent, registry: ModelRegistry
) -> NewModel:
    config = context.folder.config
    start = config.get("load_checkpoint_path")
    parent = None if start is None else find_weights(start).registered(registry)
    measured = {name: value for name, value in split_values(metrics)[0].items() if math.isfinite(value)}
    return NewModel(
        name=config["registered_model_name"],
        base_model=config["model_name"],
        artifact=artifacts[0],
        sampler=artifacts[1] if len(artifacts) > 1 else None,
        parent=None if parent is None else parent.id,
        descent=descent,
        metrics=measured,
        headline=next(iter(ranked(measured, read_history(context.folder.path).declared)), None),
        recipe=context.recipe,
        run_folder=str(context.folder.path.resolve()),
        config_hash=config_sha256(
            {name: value for name, value in config.items() if name not in context.folder.free_fields}
        ),
        is_synthetic=bool(context.folder.synthetic),
    )
