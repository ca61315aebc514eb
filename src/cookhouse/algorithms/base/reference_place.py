"""The place of a run's reference: settled at its start, written down, and the same after a resume."""

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


class BegunSettings(Protocol):
    """Settings that name the weights with which a run begins."""

    @property
    def model_name(self) -> str: ...
    @property
    def load_checkpoint_path(self) -> str | None: ...


def reference_in_words(config: BegunSettings, named: str | None) -> str:
    """Description of the reference's weights, for people; `named` is what the settings name."""
    return named or f"{config.load_checkpoint_path or config.model_name}, as the run begins with it"


async def reference_place(
    config: BegunSettings,
    session: TrainingSession,
    folder: RunFolder,
    registry: ModelRegistry | None,
    *,
    named: str | None,
    purpose: Purpose,
) -> Mapping[str, str]:
    """The `model_path` or `base_model` of the reference.

    That is what the settings name, or what the run began with: the base model or, where it began with other weights, a
    copy of them that is the run's own, so that it does not matter what becomes of the original. A resumed run goes on
    with what its folder says.

    Raises:
        InputError: the service does not have these weights, or the folder does not say which they are.
        ServiceError: it failed.
    """
    record = folder.path / REFERENCE_FILE
    is_copied = named is None and config.load_checkpoint_path is not None
    if folder.resume is not None and (is_copied or record.exists()):
        return _recorded(record)
    place = await _copied(session, purpose) if is_copied else _named(config, named, registry, purpose)
    write_whole(record, json.dumps(dict(place)) + "\n")
    return place


def _named(
    config: BegunSettings, named: str | None, registry: ModelRegistry | None, purpose: Purpose
) -> Mapping[str, str]:
    return {"base_model": config.model_name} if named is None else find_weights(named, registry).place(purpose)


async def _copied(session: TrainingSession, purpose: Purpose) -> Mapping[str, str]:
    with service_errors("saving the reference"):
        if purpose == "training":
            return {"model_path": (await session.client.save_state("reference")).path}
        return {"model_path": (await session.client.save_weights_for_sampler("reference")).path}


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
