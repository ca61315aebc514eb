"""Run folders: opening one, what lies in it, what a run handed back, and the page of it."""

from cookhouse.runs.choice import FolderChoice, FolderSpec, choose_folder
from cookhouse.runs.folder import RunFolder, open_folder
from cookhouse.runs.page import write_report
from cookhouse.runs.plan import Preview, RunPlan
from cookhouse.runs.record import read_record
from cookhouse.runs.result import AnswerSample, Figure, RunResult, RunSummary, read_result, write_result

__all__ = [
    "AnswerSample",
    "Figure",
    "FolderChoice",
    "FolderSpec",
    "Preview",
    "RunFolder",
    "RunPlan",
    "RunResult",
    "RunSummary",
    "choose_folder",
    "open_folder",
    "read_record",
    "read_result",
    "write_report",
    "write_result",
]
