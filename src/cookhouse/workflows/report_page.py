"""report.html: a run on one page that opens anywhere, made from what lies in its folder."""

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

from cookhouse.errors import InputError
from cookhouse.telemetry import keys, read_metrics
from cookhouse.training import Checkpoint, CheckpointFile
from cookhouse.training.files import write_whole
from cookhouse.workflows.curve_svg import curve_svg, number
from cookhouse.workflows.curves import Curve, Point, curves_of
from cookhouse.workflows.folder import CHECKPOINTS_FILE, CONFIG_FILE, METRICS_FILE, SAMPLES_FOLDER, RecordedAnswer
from cookhouse.workflows.page import collapsed, page, section, table, text

REPORT_FILE = "report.html"

_ROLLOUTS_FOLDER = "rollouts"
_FIRST = (
    keys.TRAIN_LOSS,
    keys.TEST_NLL,
    keys.TEST_EXACT_MATCH,
    "env/all/reward/total",
    "test/env/all/reward/total",
    "optim/kl_sample_train_v1",
    "optim/entropy",
    "optim/grad_norm",
    keys.LEARNING_RATE,
)
"""The most telling metrics, in this order, above all others."""
_GROUPS = ("train", "env", "test", "optim", "rollouts", "time")
_LESS_IS_BETTER = {"nll", "bits_per_byte", "malformed", "loss"}
_MORE_IS_BETTER = {"exact_match", "reward", "correct", "format", "accuracy"}
"""Parts of a metric's name that tell which of its values is the best."""
_MAX_ANSWERS = 40
_MAX_CHARACTERS = 2000
_MAX_LINKS = 200

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class _Found:
    """What a run folder holds."""

    folder: Path
    config: Mapping[str, Any]
    curves: Sequence[Curve]
    last_step: int
    checkpoints: Sequence[Checkpoint]
    answers: Mapping[int, Sequence[RecordedAnswer]]
    """Of the first and the last evaluation, by the steps that the weights had taken."""
    rollouts: Sequence[Path]
    gaps: Sequence[str]
    """What is missing, or cannot be read and why."""


def write_report(folder: Path) -> Path:
    """Write report.html into a run folder, finished or not, and return its path. What is missing or broken is named
    on the page.

    Raises:
        InputError: the folder holds no run, or cannot be written.
    """
    if not folder.is_dir():
        raise InputError(f"{folder} is no folder; name the folder of a run")
    found = _find(folder)
    path = folder / REPORT_FILE
    write_whole(path, _render(found))
    return path


def _find(folder: Path) -> _Found:
    gaps: list[str] = []

    def read(name: str, reader: Callable[[Path], T], empty: T, unmade: str | None = None) -> T:
        path = folder / name
        try:
            if path.exists():
                return reader(path)
            gaps.extend([] if unmade is None else [f"{name} is missing: {unmade}"])
        except (OSError, ValueError, TypeError, KeyError) as error:
            gaps.append(f"{name} cannot be read: {error}")
        return empty

    config = read(CONFIG_FILE, _read_config, {}, "the settings are unknown")
    is_run = config or any((folder / name).exists() for name in (METRICS_FILE, CHECKPOINTS_FILE))
    if not is_run and any(folder.iterdir()):
        raise InputError(f"{folder} holds files but no run ({CONFIG_FILE} is missing or not a run's); name a run's")
    rows = read(METRICS_FILE, read_metrics, [], "no step has finished")
    checkpoints: list[Checkpoint] = read(
        CHECKPOINTS_FILE, lambda path: CheckpointFile(path).read(), [], "nothing has been saved"
    )
    samples = sorted((int(path.stem), path.name) for path in folder.glob(f"{SAMPLES_FOLDER}/[0-9]*.json"))
    return _Found(
        folder=folder,
        config=config,
        curves=curves_of(rows),
        last_step=max((row["step"] for row in rows), default=0),
        checkpoints=checkpoints,
        answers={
            step: read(f"{SAMPLES_FOLDER}/{name}", _read_answers, []) for step, name in {*samples[:1], *samples[-1:]}
        },
        rollouts=sorted(folder.glob(f"{_ROLLOUTS_FOLDER}/*.html")),
        gaps=gaps,
    )


def _read_config(path: Path) -> dict[str, Any]:
    config = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(config, dict) or not isinstance(config.get("config"), dict):
        raise InputError("it is not the config of a run")
    return config


def _read_answers(path: Path) -> list[RecordedAnswer]:
    return [RecordedAnswer(**answer) for answer in json.loads(path.read_text(encoding="utf-8"))]
