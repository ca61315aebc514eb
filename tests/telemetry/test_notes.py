"""Notes in order of weight, each once, the first of them in view."""

import io

from rich.console import Console

from cookhouse.telemetry import Event, ResultNote, Telemetry, TerminalSink, by_weight

NOTES = ["known 1", ResultNote("result 1"), "known 2", "known 1", ResultNote("result 2"), "known 3"]


def told(*, every_note: bool, times: int = 1) -> list[str]:
    out = io.StringIO()
    with Telemetry([TerminalSink(Console(file=out, width=100), every_note=every_note)]) as telemetry:
        for _ in range(times):
            telemetry.notes(NOTES)
            telemetry.event("run.service", service="training here")
    return out.getvalue().splitlines()


def test_what_changes_the_result_stands_first_and_nothing_twice() -> None:
    assert by_weight(NOTES) == ["result 1", "result 2", "known 1", "known 2", "known 3"]


def test_three_are_in_view_and_the_others_are_counted() -> None:
    # Catches the one note that matters below five that do not, and notes that are gone without a word.
    shown = ["note: result 1", "note: result 2", "note: known 1"]
    assert told(every_note=False) == [*shown, "2 more notes with --verbose", "training here"]
    assert told(every_note=True) == [*shown, "note: known 2", "note: known 3", "training here"]


def test_a_run_of_several_says_what_they_share_once() -> None:
    # Catches a pipeline that repeats the notes of its first run for each of the others.
    assert told(every_note=True, times=2)[5:] == ["training here", "training here"]


def test_notes_of_a_run_that_ends_at_once_are_shown() -> None:
    out = io.StringIO()
    sink = TerminalSink(Console(file=out, width=100))
    sink.write(Event(name="data.note", text={"text": "result 1"}))
    sink.close()
    assert out.getvalue() == "note: result 1\n"
