"""The record of a sweep, as its folder has it: the names of its runs, their table, and the page of all."""

import csv
import io
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cookhouse.errors import InputError, UnknownNameError
from cookhouse.files import write_whole
from cookhouse.report import PAUSED, STOPPED, RunRecord, SweepTable, compare, comparison_page, setting_text
from cookhouse.runs.history.launches import History, RunStatus, read_history
from cookhouse.runs.listing.find import is_run
from cookhouse.runs.names import CONFIG_FILE, REPORT_FILE, SWEEP_RECIPE
from cookhouse.runs.page import write_report
from cookhouse.runs.record import read_record
from cookhouse.runs.result import read_result
from cookhouse.sweeps.halving import HALVING_FILE, Halving, read_halving
from cookhouse.sweeps.table import sweep_table, swept_settings

SWEEP_TABLE_FILE = "sweep.csv"
"""The runs, a line each."""
SWEEP_ERRORS_FILE = "sweep.json"
"""What ended the runs that failed, by name."""
EXPERIMENT_FILE = "experiment.json"
"""The runs as a document, to make them again."""
INTERRUPTED = str(RunStatus.INTERRUPTED)
UNREADABLE = "unreadable"
"""The state of a run whose files are broken."""
_MAX_NAME_CHARACTERS = 80


@dataclass(frozen=True, kw_only=True)
class SweepRecord:
    """A sweep as it stands."""

    table: SweepTable
    records: Mapping[str, RunRecord]
    """Of the runs that have begun, by name."""
    errors: Mapping[str, str]
    """What ended those that failed, by name."""
    seconds: Mapping[str, float] = field(default_factory=dict)
    """How long those that have begun took so far, by name."""
    problems: Mapping[str, str] = field(default_factory=dict)
    """What cannot be read, by name of a run or of a file of the sweep's."""
    halving: Halving | None = None
    """Its decisions, of a sweep by successive halving."""


def best_text(record: SweepRecord) -> str:
    """Sentence on the run that is the best, or on why none is."""
    table = record.table
    if table.best is not None and table.metric is not None:
        against = f" ({table.remark})" if table.remark else ""
        return f"{table.best.name}, {table.metric.label} {table.text(table.best)}{against}"
    if table.remark:
        return f"none: {table.remark}"
    if table.metric is None:
        return "no run has finished with a metric that the others have"
    measured = [record for record in record.records.values() if record.metrics]
    if measured and all(row.value is None for row in table.rows):
        names = {name for record in measured for name in record.metrics[-1]}
        return f"no run has it: {UnknownNameError('metric', table.metric.name, names)}"
    if table.way is None:
        return f"{table.metric.name} has no direction; set direction=less or direction=more"
    return f"no run has finished with a finite {table.metric.name}"


def by_error(errors: Mapping[str, str]) -> dict[str, list[str]]:
    """Names of the runs that failed, by error."""
    names: dict[str, list[str]] = {}
    for name, error in errors.items():
        names.setdefault(error, []).append(name)
    return names


def part_names(parts: Sequence[Mapping[str, Any]]) -> list[str]:
    """Names of the folders of runs, each its number and the settings that differ: `2-learning_rate=0.001`."""
    swept = swept_settings(parts)
    size = len(str(len(parts)))
    names = []
    for number, part in enumerate(parts, 1):
        text = ",".join(f"{name}={_plain(part[name])}" for name in swept if name in part)
        names.append(f"{number:0{size}}-{text}"[:_MAX_NAME_CHARACTERS].rstrip("-.,"))
    return names


def is_sweep(folder: Path) -> bool:
    """True if a folder is that of a sweep."""
    return _settings(folder) is not None


def read_sweep(folder: Path, read: Callable[[Path], RunRecord] = read_record) -> SweepRecord:
    """Read the results of a sweep's runs so far. `read` is asked for the record of each.

    Raises:
        InputError: the folder holds no sweep.
    """
    settings = _settings(folder)
    if settings is None:
        raise InputError(f"{folder} holds no sweep; name the folder of one")
    runs = settings["runs"]
    parts = dict(zip(part_names(runs), runs, strict=True))
    problems: dict[str, str] = {}
    records: dict[str, RunRecord] = {}
    histories: dict[str, History] = {}
    for name in parts:
        if not is_run(folder / name):
            continue
        try:
            histories[name], records[name] = read_history(folder / name), read(folder / name)
        except (InputError, OSError) as error:  # one that is broken, or was deleted meanwhile, leaves the others alone
            problems[name] = str(error)
    errors, halving = _errors(folder, problems), _halving(folder, problems)
    states = dict.fromkeys(problems.keys() & parts.keys(), UNREADABLE)
    states |= {name: str(history.status) for name, history in histories.items() if name not in problems}
    states |= dict.fromkeys(errors, str(RunStatus.FAILED))
    how: dict[str, Any] = {"metric": settings.get("metric"), "way": settings.get("direction")}
    if halving is not None:
        states |= {name: state for name, state in _rung_states(halving).items() if states.get(name) == INTERRUPTED}
        how = {"metric": halving.metric, "way": halving.direction, **_at_rungs(folder, halving, states, problems)}
    table = sweep_table(parts, records, states, **how)
    seconds = {name: history.seconds for name, history in histories.items()}
    return SweepRecord(table=table, records=records, errors=errors, seconds=seconds, problems=problems, halving=halving)


def rung_states(folder: Path) -> dict[str, str]:
    """Of a sweep by successive halving: `PAUSED` or `STOPPED` of each run that is at a rung, by name. None where its
    decisions cannot be read, which `read_sweep` reports.
    """
    halving = _halving(folder, {})
    return {} if halving is None else _rung_states(halving)


def _rung_states(halving: Halving) -> dict[str, str]:
    return dict.fromkeys(halving.paused_runs, STOPPED if halving.is_over else PAUSED)


def _at_rungs(
    folder: Path, halving: Halving, states: Mapping[str, str], problems: dict[str, str]
) -> dict[str, Mapping[str, Any]]:
    """Steps and values of the table: of runs that have not finished those of their rungs, which a resume cuts off their
    rows.
    """
    last = halving.last
    steps = {name: each.step for name, each in last.items()}
    finished = {name for name, state in states.items() if state == RunStatus.FINISHED}
    for name in finished:
        try:
            result = read_result(folder / name)
        except InputError as error:
            problems[name] = str(error)
            continue
        if result is not None:
            steps[name] = result.summary.num_steps
    values = {
        name: (math.nan if each.value is None else each.value, each.stderr)
        for name, each in last.items()
        if name not in finished
    }
    return {"steps": steps, "rung_values": values}


def write_sweep(folder: Path, errors: Mapping[str, str]) -> SweepRecord:
    """Keep what ended the runs that failed, and the table of all. Raises `InputError` where it cannot be written."""
    write_whole(folder / SWEEP_ERRORS_FILE, json.dumps(dict(errors), indent=1) + "\n")
    sweep = read_sweep(folder)
    write_whole(folder / SWEEP_TABLE_FILE, _csv(sweep.table))
    return sweep


def write_page(folder: Path) -> Path:
    """Write report.html into the folder of a sweep, or of any other run, finished or not, and return its path.

    Raises:
        InputError: the folder holds no run, or cannot be written.
    """
    if not is_sweep(folder):
        return write_report(folder)
    sweep, path = read_sweep(folder), folder / REPORT_FILE
    write_whole(path, comparison_page(compare(sweep.records), sweep.table))
    return path


def _csv(table: SweepTable) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    steps = ["steps"] if table.has_steps else []
    writer.writerow(["run", *table.swept, "state", *steps, table.metric.name if table.metric else "metric", "best"])
    for row in table.rows:
        value = "" if row.value is None else row.value
        taken = [row.steps] if table.has_steps else []
        cells = [row.name, *map(setting_text, row.settings.values()), row.state]
        writer.writerow([*cells, *taken, value, int(row.is_best)])
    return out.getvalue()


def _settings(folder: Path) -> dict[str, Any] | None:
    try:
        record = json.loads((folder / CONFIG_FILE).read_text(encoding="utf-8"))
        settings = record["config"]
        is_one = record["recipe"] == SWEEP_RECIPE and all(isinstance(run, dict) for run in settings["runs"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    return dict(settings) if is_one else None


def _halving(folder: Path, problems: dict[str, str]) -> Halving | None:
    try:
        return read_halving(folder)
    except InputError as error:
        problems[HALVING_FILE] = str(error)
        return None


def _errors(folder: Path, problems: dict[str, str]) -> dict[str, str]:
    try:
        errors = json.loads((folder / SWEEP_ERRORS_FILE).read_text(encoding="utf-8"))
    except FileNotFoundError:  # no run has failed yet
        return {}
    except (OSError, ValueError, RecursionError) as error:
        problems[SWEEP_ERRORS_FILE] = f"it cannot be read: {error}"
        return {}
    return {str(name): str(error) for name, error in errors.items()} if isinstance(errors, dict) else {}


def _plain(value: Any) -> str:
    """A value as part of a file's name."""
    text = value if isinstance(value, str) else setting_text(value)
    return re.sub(r"[^\w.+-]+", "_", text).strip("_.")
