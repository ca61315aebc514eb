"""Registration by hand: of a run's directory what the run recorded, of other weights what they say themselves."""

import math
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from cookhouse.cli.checkpoints.saved import TINKER, find_saved, is_run_folder, list_saved, saved_by
from cookhouse.cli.runs.names import run_folder
from cookhouse.errors import InputError, UnknownNameError
from cookhouse.registry import Artifact, Descent, ModelRegistry, NewModel, config_sha256, read_artifact
from cookhouse.runs.names import METRICS_FILE
from cookhouse.telemetry import metrics_at, ranked, split_values
from cookhouse.weights.names import is_checkpoint_path
from cookhouse.weights.peft_folders import adapted_model


def model_by_hand(
    registry: ModelRegistry,
    name: str,
    weights: str,
    *,
    run: str | None,
    base_model: str | None,
    parent: str | None,
    descent: str,
    metrics: Sequence[str],
) -> NewModel:
    """A version of weights that a user names, and of what the user says of it over what is recorded.

    Raises:
        InputError: there are no such weights, or nobody knows their base model.
    """
    from cookhouse.runs.listing.weights import weights_named

    weights = weights_named(weights, may_be_model=False)
    if is_run_folder(Path(weights)):
        known = _of_run(registry, name, Path(weights))
    elif is_checkpoint_path(weights):
        known = _of_path(name, weights, run, base_model)
    else:
        known = _of_folder(name, Path(weights), base_model)
    measured = _metrics(metrics)
    return replace(
        known,
        base_model=base_model or known.base_model,
        parent=parent or known.parent,
        descent=parse_descent(descent),
        metrics={**known.metrics, **measured},
        headline=next(iter(measured), known.headline),
    )


def parse_descent(text: str) -> Descent:
    """A kind of descent by its name. Raises `UnknownNameError`."""
    if text not in set(Descent):
        raise UnknownNameError("kind of descent", text, Descent)
    return Descent(text)


def _of_run(registry: ModelRegistry, name: str, folder: Path) -> NewModel:
    from cookhouse.runs import read_record, read_result, recorded_synthetic
    from cookhouse.weights.checkpoints import CHECKPOINTS_FILE, CheckpointFile, named_by_run
    from cookhouse.weights.names import find_weights, no_checkpoint

    saved = list_saved(folder)
    if not saved:
        raise no_checkpoint(folder)
    files = {each.path: each.folder for each in saved}
    meant = named_by_run(CheckpointFile(folder / CHECKPOINTS_FILE).read())[0]
    paths = [path for path in (meant.state_path, meant.sampler_path) if path is not None]
    record = read_record(folder)
    recorded = record.config
    address = recorded["config"].get("base_url")
    artifacts = [_artifact(path, files[path], address) for path in paths]
    result = read_result(folder)
    told = {} if result is None else result.metrics
    numbers = split_values(metrics_at(folder / METRICS_FILE, meant.step) if meant.best and not meant.final else told)[0]
    metrics = {key: value for key, value in numbers.items() if math.isfinite(value)}
    config, free = dict(recorded["config"]), recorded.get("free_on_resume", ())
    start = config.get("load_checkpoint_path")
    parent = None if start is None else find_weights(start).registered(registry)
    return NewModel(
        name=name,
        base_model=str(config["model_name"]),
        artifact=artifacts[0],
        sampler=artifacts[1] if len(artifacts) > 1 else None,
        parent=None if parent is None else parent.id,
        metrics=metrics,
        headline=next(iter(ranked(metrics, record.declared)), None),
        recipe=str(recorded["recipe"]),
        run_folder=str(folder.resolve()),
        is_synthetic=bool(recorded_synthetic(folder)),
        config_hash=config_sha256({key: value for key, value in config.items() if key not in free}),
    )


def _of_path(name: str, path: str, run: str | None, base_model: str | None) -> NewModel:
    from cookhouse.weights.names import find_weights

    saved = find_saved(path, run, None)
    folder = saved_by(path) if run is None else run_folder(run)
    trained = None if folder is None else find_weights(str(folder)).origin(()).base_model
    known = base_model or (trained if saved.row is None else saved.row.base_model)
    return NewModel(
        name=name,
        base_model=_known(known, path),
        artifact=_artifact(path, saved.folder),
        run_folder=None if folder is None else str(folder.resolve()),
    )


def _artifact(path: str, files: Path | None, address: str | None = None) -> Artifact:
    """Weights with their checksum, for which the service is asked that has them, if one is named."""
    from cookhouse.training import served_sha256

    service = address or os.environ.get("TINKER_BASE_URL")
    if files is not None or not service:
        return read_artifact(path, files)
    return read_artifact(path, files, served_sha256(service, os.environ.get("TINKER_API_KEY"), path))


def _of_folder(name: str, folder: Path, base_model: str | None) -> NewModel:
    if not folder.is_dir():
        raise InputError(
            f"{str(folder)!r} names no weights; give a run directory, a {TINKER} path, or a folder of weights"
        )
    return NewModel(
        name=name,
        base_model=_known(base_model or _base_model_in(folder), str(folder)),
        artifact=read_artifact(str(folder), folder),
    )


def _base_model_in(folder: Path) -> str | None:
    """Base model that a checkpoint's folder, or one of PEFT, names."""
    from cookhouse.engine.files.manifest import is_checkpoint, read_spec

    return read_spec(folder)[0] if is_checkpoint(folder) else adapted_model(folder)


def _known(base_model: str | None, weights: str) -> str:
    if not base_model:
        raise InputError(f"the base model of {weights} is unknown; name it with --base-model")
    return base_model


def _metrics(texts: Sequence[str]) -> dict[str, float]:
    metrics = {}
    for text in texts:
        name, equals, value = text.partition("=")
        try:
            metrics[name.strip()] = float(value)
        except ValueError as error:
            raise InputError(f"{text!r} is no metric; write a name and a number, as in accuracy=0.95") from error
        if not equals or not name.strip():
            raise InputError(f"{text!r} is no metric; write a name and a number, as in accuracy=0.95")
    return metrics
