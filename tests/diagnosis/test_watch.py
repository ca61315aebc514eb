"""What becomes true is reported once, while the run trains."""

from tests.diagnosis.series import GRPO, rollouts

from cookhouse.diagnosis import FindingsWatch, RunFacts
from cookhouse.telemetry import Event, Record, Telemetry, events


class Kept:
    def __init__(self) -> None:
        self.events: list[Event] = []

    def write(self, record: Record) -> None:
        if isinstance(record, Event):
            self.events.append(record)

    def close(self) -> None: ...


def reported(rows: list[dict[str, float]], before: int = 0, total_steps: int = 100) -> list[Event]:
    kept = Kept()
    telemetry = Telemetry([kept])
    facts = RunFacts(settings=GRPO, total_steps=total_steps)
    telemetry.add(FindingsWatch(telemetry, facts, rows[:before]))
    for row in rows[before:]:
        telemetry.metrics(int(row["step"]), {name: value for name, value in row.items() if name != "step"})
    return kept.events


def test_a_finding_is_reported_once_when_it_becomes_true() -> None:
    [event] = reported(rollouts(9, mixed=0))
    assert (event.name, event.step) == (events.RUN_FINDING, 4)
    assert event.text["finding"] == "no_spread"
    assert event.text["severity"] == "critical"
    assert event.text["text"].startswith("0 of 64 groups had different rewards in the last 4 steps")
    assert "easier problems" in event.text["advice"]
    assert event.metrics["env/all/by_group/frac_mixed"] == 0.0


def test_what_came_before_a_resume_counts() -> None:
    [event] = reported(rollouts(5, mixed=0), before=4)
    assert event.step == 5


def test_a_note_is_left_to_the_end() -> None:
    # Catches a terminal that says of the first step of every run that it is early.
    assert reported(rollouts(3, mixed=0.5, reward=0.1)) == []
    assert reported(rollouts(12, mixed=0, good=1, reward=1.0)) == []
