"""Everything a person looks at with a browser: pages made from plain data, which read and write no file."""

from cookhouse.report.columns import MetricColumns
from cookhouse.report.comparison import (
    ABSENT,
    OF_THE_FOLDER,
    ComparedMetric,
    ComparedSetting,
    Comparison,
    compare,
    setting_text,
    telling,
)
from cookhouse.report.comparison_page import comparison_page
from cookhouse.report.item_changes import Change, ItemChanges, change_of, item_changes
from cookhouse.report.noted_page import noted_page
from cookhouse.report.overoptimization import overoptimization_remark
from cookhouse.report.paired_page import PairedTable, paired_page
from cookhouse.report.record import RecordedAnswer, RunPart, RunRecord, checkpoint_text
from cookhouse.report.render_page import RenderedExample, RenderedToken, render_page
from cookhouse.report.rollouts_page import rollouts_page
from cookhouse.report.run_page import run_page
from cookhouse.report.setting_chart import setting_charts
from cookhouse.report.standing import other_data
from cookhouse.report.sweep import (
    PAUSED,
    STOPPED,
    WAITING,
    SweepRow,
    SweepTable,
)
from cookhouse.report.transcripts_page import transcripts_page

__all__ = [
    "ABSENT",
    "OF_THE_FOLDER",
    "PAUSED",
    "STOPPED",
    "WAITING",
    "Change",
    "ComparedMetric",
    "ComparedSetting",
    "Comparison",
    "ItemChanges",
    "MetricColumns",
    "PairedTable",
    "RecordedAnswer",
    "RenderedExample",
    "RenderedToken",
    "RunPart",
    "RunRecord",
    "SweepRow",
    "SweepTable",
    "change_of",
    "checkpoint_text",
    "compare",
    "comparison_page",
    "item_changes",
    "noted_page",
    "other_data",
    "overoptimization_remark",
    "paired_page",
    "render_page",
    "rollouts_page",
    "run_page",
    "setting_charts",
    "setting_text",
    "telling",
    "transcripts_page",
]
