"""The runs of a sweep: their names below its folder, and what they have left so far as one table."""

import csv
import io
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cookhouse.errors import InputError
from cookhouse.files import write_whole
from cookhouse.report import RunRecord, SweepTable, setting_text, sweep_table, swept_settings
from cookhouse.runs.history.launches import RunStatus, read_history
from cookhouse.runs.listing.find import is_run
from cookhouse.runs.names import CONFIG_FILE, SWEEP_ERRORS_FILE, SWEEP_TABLE_FILE
from cookhouse.runs.record import read_record

_RECIPE = "sweep"
_MAX_NAME_CHARACTERS = 80


@dataclass(frozen=True, kw_only=True)
class SweepRecord:
    """A sweep as it stands."""

    table: SweepTable
    records: Mapping[str, RunRecord]
    """Of the runs that have begun, by name."""
    errors: Mapping[str, str]
    """What ended those that failed, by name."""


def part_names(parts: Sequence[Mapping[str, Any]]) -> list[str]:
    """Names of the folders of runs, each its number and the settings that differ: `2-learning_rate=0.001`."""
    swept = swept_settings(parts)
    size = len(str(len(parts)))
    names = []
    for number, part in enumerate(parts, 1):
        told = ",".join(f"{name}={_plain(part[name])}" for name in swept if name in part)
        names.append(f"{number:0{size}}-{told}"[:_MAX_NAME_CHARACTERS].rstrip("-.,"))
    return names


def is_sweep(folder: Path) -> bool:
    """Whether a folder is that of a sweep."""
    return _settings(folder) is not None


def read_sweep(folder: Path) -> SweepRecord:
    """What the runs of a sweep have left so far.

    Raises:
        InputError: the folder holds no sweep.
    """
    settings = _settings(folder)
    if settings is None:
        raise InputError(f"{folder} holds no sweep; name the folder of one")
    runs = settings["runs"]
    parts = dict(zip(part_names(runs), runs, strict=True))
    errors = _errors(folder)
    begun = {name: folder / name for name in parts if is_run(folder / name)}
    records = {name: read_record(path) for name, path in begun.items()}
    states = {name: str(read_history(path).status) for name, path in begun.items()}
    states |= dict.fromkeys(errors, str(RunStatus.FAILED))
    table = sweep_table(parts, records, states, metric=settings.get("metric"), way=settings.get("direction"))
    return SweepRecord(table=table, records=records, errors=errors)


def write_sweep(folder: Path, errors: Mapping[str, str]) -> SweepRecord:
    """Keep what ended the runs that failed, and the table of all. Raises `InputError` where it cannot be written."""
    write_whole(folder / SWEEP_ERRORS_FILE, json.dumps(dict(errors), indent=1) + "\n")
    sweep = read_sweep(folder)
    write_whole(folder / SWEEP_TABLE_FILE, _csv(sweep.table))
    return sweep


def _csv(table: SweepTable) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["run", *table.swept, "state", table.metric.name if table.metric else "metric", "best"])
    for row in table.rows:
        value = "" if row.value is None else row.value
        writer.writerow([row.name, *map(setting_text, row.settings.values()), row.state, value, int(row.is_best)])
    return out.getvalue()


def _settings(folder: Path) -> dict[str, Any] | None:
    try:
        record = json.loads((folder / CONFIG_FILE).read_text(encoding="utf-8"))
        settings = record["config"]
        is_one = record["recipe"] == _RECIPE and all(isinstance(run, dict) for run in settings["runs"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return dict(settings) if is_one else None


def _errors(folder: Path) -> dict[str, str]:
    try:
        errors = json.loads((folder / SWEEP_ERRORS_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return {str(name): str(error) for name, error in errors.items()} if isinstance(errors, dict) else {}


def _plain(value: Any) -> str:
    """A value as part of a file's name."""
    text = value if isinstance(value, str) else setting_text(value)
    return re.sub(r"[^\w.+-]+", "_", text).strip("_.")
