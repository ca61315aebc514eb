"""Run directories: opening one, what lies in it, what a run handed back, and the page of it; all of those in a place.

Each name is loaded when it is first asked for: listing runs loads no SDK.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cookhouse.runs.artifacts import put_run, run_prefix
    from cookhouse.runs.findings import read_findings
    from cookhouse.runs.folder.choice import (
        FolderChoice,
        FolderSpec,
        choose_folder,
        decided_by_data,
        recorded_synthetic,
    )
    from cookhouse.runs.folder.replaced import settling
    from cookhouse.runs.folder.run_folder import RunFolder, open_folder
    from cookhouse.runs.folder.run_json import record_failure
    from cookhouse.runs.history.launches import History, Launch, RunStatus, read_history, read_launches
    from cookhouse.runs.listing.deletion import check_deletable, delete_run, needs_of, runs_that_need
    from cookhouse.runs.listing.find import FoundRun, find_run, find_runs, run_names
    from cookhouse.runs.listing.overview import RunOverview, overview_of, overviews_of
    from cookhouse.runs.names import RUNS_FOLDER
    from cookhouse.runs.page import write_comparison, write_report
    from cookhouse.runs.plan import Preview, RunPlan
    from cookhouse.runs.reading.attempts import attempt_row
    from cookhouse.runs.record import headline_of, read_record
    from cookhouse.runs.result import AnswerSample, Figure, RunResult, RunSummary, read_result, write_result
    from cookhouse.runs.samples import answer_from_row

_PLACES = {
    "artifacts": ("put_run", "run_prefix"),
    "findings": ("read_findings",),
    "folder.choice": ("FolderChoice", "FolderSpec", "choose_folder", "decided_by_data", "recorded_synthetic"),
    "listing.deletion": ("check_deletable", "delete_run", "needs_of", "runs_that_need"),
    "folder.replaced": ("settling",),
    "folder.run_json": ("record_failure",),
    "folder.run_folder": ("RunFolder", "open_folder"),
    "listing.find": ("FoundRun", "find_run", "find_runs", "run_names"),
    "names": ("RUNS_FOLDER",),
    "listing.overview": ("RunOverview", "overview_of", "overviews_of"),
    "page": ("write_comparison", "write_report"),
    "plan": ("Preview", "RunPlan"),
    "reading.attempts": ("attempt_row",),
    "record": ("headline_of", "read_record"),
    "result": ("AnswerSample", "Figure", "RunResult", "RunSummary", "read_result", "write_result"),
    "samples": ("answer_from_row",),
    "history.launches": ("History", "RunStatus", "Launch", "read_history", "read_launches"),
}
_MODULES = {name: module for module, names in _PLACES.items() for name in names}

__all__ = [
    "RUNS_FOLDER",
    "AnswerSample",
    "Figure",
    "FolderChoice",
    "FolderSpec",
    "FoundRun",
    "History",
    "Launch",
    "Preview",
    "RunFolder",
    "RunOverview",
    "RunPlan",
    "RunResult",
    "RunStatus",
    "RunSummary",
    "answer_from_row",
    "attempt_row",
    "check_deletable",
    "choose_folder",
    "decided_by_data",
    "delete_run",
    "find_run",
    "find_runs",
    "headline_of",
    "needs_of",
    "open_folder",
    "overview_of",
    "overviews_of",
    "put_run",
    "read_findings",
    "read_history",
    "read_launches",
    "read_record",
    "read_result",
    "record_failure",
    "recorded_synthetic",
    "run_names",
    "run_prefix",
    "runs_that_need",
    "settling",
    "write_comparison",
    "write_report",
    "write_result",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
