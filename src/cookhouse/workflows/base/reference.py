"""The reference of a run: settled at its start, written down, and the same after a resume."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from cookhouse.errors import InputError
from cookhouse.files import write_whole
from cookhouse.registry import ModelRegistry
from cookhouse.runs import RunFolder
from cookhouse.runs.names import REFERENCE_FILE
from cookhouse.training import TrainingSession, service_errors
from cookhouse.weights.names import Purpose, find_weights


class BeginsWithWeights(Protocol):
    """What says where a run begins."""

    @property
    def model_name(self) -> str: ...
    @property
    def load_checkpoint_path(self) -> str | None: ...


def reference_in_words(config: BeginsWithWeights, named: str | None) -> str:
    """Which weights are the reference, for people."""
    if named is not None:
        return named
    if config.load_checkpoint_path is not None:
        return f"the weights that the run begins with, {config.load_checkpoint_path}"
    return f"the base model, {config.model_name}"


async def settle_reference(
    config: BeginsWithWeights,
    named: str | None,
    purpose: Purpose,
    session: TrainingSession,
    folder: RunFolder,
    registry: ModelRegistry | None,
) -> Mapping[str, str]:
    """A `model_path` or a `base_model`: what a run folder names, else what this start of the run settles.

    That is `named`, or what the run begins with: the base model or, where it begins with other weights, a copy of them
    that is the run's own, so that it does not matter what becomes of the original.

    Raises:
        InputError: the service does not have these weights, or the folder does not say which they are.
        ServiceError: it failed.
    """
    record = folder.path / REFERENCE_FILE
    if folder.resume is not None:
        return _recorded(record)
    place = await _place(config, named, purpose, session, registry)
    write_whole(record, json.dumps(dict(place)) + "\n")
    return place


async def _place(
    config: BeginsWithWeights,
    named: str | None,
    purpose: Purpose,
    session: TrainingSession,
    registry: ModelRegistry | None,
) -> Mapping[str, str]:
    if named is not None:
        return find_weights(named, registry).place(purpose)
    if config.load_checkpoint_path is None:
        return {"base_model": config.model_name}
    client = session.client
    save = client.save_state if purpose == "training" else client.save_weights_for_sampler
    with service_errors("saving the reference"):
        return {"model_path": (await save("reference")).path}


def _recorded(record: Path) -> Mapping[str, str]:
    try:
        place = json.loads(record.read_text(encoding="utf-8"))
        if set(place) not in ({"model_path"}, {"base_model"}) or not all(isinstance(x, str) for x in place.values()):
            raise ValueError("it names neither a base_model nor a model_path")
    except (OSError, ValueError, TypeError) as error:
        raise InputError(
            f"{record} does not say what the reference of this run is ({error}); start a new run in another log_path"
        ) from error
    return {str(name): str(value) for name, value in place.items()}
