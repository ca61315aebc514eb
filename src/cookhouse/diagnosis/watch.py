"""Reports findings while a run trains: a sink that reads its rows of metrics."""

from collections.abc import Iterable, Mapping
from typing import Any

from cookhouse.diagnosis.history import MetricHistory
from cookhouse.diagnosis.rule import RunFacts
from cookhouse.diagnosis.rules import findings_in
from cookhouse.telemetry import MetricsRow, Record, Telemetry, events


class FindingsWatch:
    """Reports by the event `run.finding` what becomes true, once in a launch; a note is for the end and for pages."""

    def __init__(self, telemetry: Telemetry, facts: RunFacts, rows: Iterable[Mapping[str, Any]] = ()) -> None:
        """`rows` are those from before a resume."""
        self._telemetry = telemetry
        self._facts = facts
        self._history = MetricHistory(rows)
        self._reported: set[str] = set()

    def write(self, record: Record) -> None:
        if not isinstance(record, MetricsRow):
            return
        self._history.add({"step": record.step, **record.metrics})
        for finding in findings_in(self._history, self._facts):
            if finding.severity == "note" or finding.name in self._reported:
                continue
            self._reported.add(finding.name)
            self._telemetry.event(
                events.RUN_FINDING,
                step=finding.step,
                metrics=finding.evidence,
                finding=finding.name,
                severity=finding.severity,
                text=finding.title,
                advice=finding.advice,
            )

    def close(self) -> None:
        """Nothing is held."""
