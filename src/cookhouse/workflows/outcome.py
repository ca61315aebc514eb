"""result.json: what a run handed back when it came to its end, to be read without running it again."""

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from cookhouse.errors import InputError
from cookhouse.training.files import write_whole
from cookhouse.workflows.result import AnswerSample, Figure, RunResult, RunSummary

RESULT_FILE = "result.json"


def write_result(result: RunResult[Any]) -> None:
    """Keep a result in its run's folder, if the run has made one.

    Raises:
        InputError: the disk is full or may not be written.
    """
    if not result.summary.folder.is_dir():
        return
    row = {
        "metrics": dict(result.metrics),
        "artifacts": dict(result.artifacts),
        "summary": asdict(result.summary),
    }
    write_whole(result.summary.folder / RESULT_FILE, json.dumps(row, indent=1, default=str) + "\n")


def read_result(folder: Path) -> RunResult[None] | None:
    """The result of a run that came to its end; None if it has not. Its state is gone with its process.

    Raises:
        InputError: the file does not hold what `write_result` wrote.
    """
    path = folder / RESULT_FILE
    if not path.is_file():
        return None
    try:
        row = json.loads(path.read_text(encoding="utf-8"))
        return RunResult(
            state=None,
            metrics=dict(row["metrics"]),
            artifacts=dict(row["artifacts"]),
            summary=replace(_summary(row["summary"]), folder=folder),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path} is not the result of a run ({error}); remove it to run that again") from error


def _summary(row: dict[str, Any]) -> RunSummary:
    paths = {name: None if row[name] is None else Path(row[name]) for name in ("folder", "report")}
    figures = [Figure(**figure) for figure in row["figures"]]
    samples = [AnswerSample(**sample) for sample in row["samples"]]
    return RunSummary(**{**row, **paths, "figures": figures, "samples": samples})
