"""Everything a person looks at with a browser: pages made from plain data, which read and write no file."""

from cookhouse.report.record import RecordedAnswer, RunRecord
from cookhouse.report.rollouts_page import rollouts_page
from cookhouse.report.run_page import run_page

__all__ = ["RecordedAnswer", "RunRecord", "rollouts_page", "run_page"]
