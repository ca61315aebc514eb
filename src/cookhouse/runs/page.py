"""report.html: a run on one page that opens anywhere, made from what lies in its folder."""

from pathlib import Path

from cookhouse.report import run_page
from cookhouse.runs.names import REPORT_FILE
from cookhouse.runs.record import read_record
from cookhouse.training.files import write_whole


def write_report(folder: Path) -> Path:
    """Write report.html into a run folder, finished or not, and return its path.

    Raises:
        InputError: the folder holds no run, or cannot be written.
    """
    page = run_page(read_record(folder))
    path = folder / REPORT_FILE
    write_whole(path, page)
    return path
