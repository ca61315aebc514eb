"""Pages that open anywhere: report.html of a run, made from what lies in its folder, and one of several runs."""

from pathlib import Path

from cookhouse.files import write_whole
from cookhouse.report import Comparison, comparison_page, run_page
from cookhouse.runs.names import REPORT_FILE
from cookhouse.runs.record import read_record


def write_report(folder: Path) -> Path:
    """Write report.html into a run directory, finished or not, and return its path.

    Raises:
        InputError: the folder holds no run, or cannot be written.
    """
    path = folder / REPORT_FILE
    write_whole(path, run_page(read_record(folder)))
    return path


def write_comparison(comparison: Comparison, path: Path) -> None:
    """Write the page of several runs. Raises `InputError` where it cannot be written."""
    write_whole(path, comparison_page(comparison))
