"""The driver of the journeys: what is typed arrives, and a screen is read as a person sees it."""

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.journeys.journey import Journey, commands_of
from tests.journeys.terminal import CTRL_C, CTRL_D, Terminal, variables_of_a_person


@pytest.fixture
def terminal(tmp_path: Path) -> Terminal:
    return Terminal(tmp_path, variables_of_a_person(tmp_path), columns=20)


def test_a_line_that_is_overwritten_is_shown_once_and_without_colors(terminal: Terminal) -> None:
    # Catches a transcript with every state of a progress line, and codes of colors in it.
    terminal.start(r"printf 'step 1\rstep 2\n\033[31mred\033[0m\n'; stty size; exit 3")
    assert terminal.done(status=3).splitlines() == ["step 2", "red", "40 20"]


def test_a_command_is_answered_and_only_what_comes_after_is_waited_for(terminal: Terminal) -> None:
    # Catches an answer that is taken to have been seen because it stood there before the question.
    terminal.start("while read -p 'you: ' it; do sleep 0.2; echo got $it; done; echo end")
    terminal.wait_for("you:")
    for _ in range(2):
        terminal.type("tea")
        assert terminal.wait_for("(got )?tea\nyou:") == "got tea\nyou:"
    terminal.press(CTRL_D)
    assert terminal.done().splitlines()[:4] == ["you: tea", "got tea", "you: tea", "got tea"]


def test_ctrl_c_interrupts_what_runs(terminal: Terminal) -> None:
    terminal.start("trap 'echo stopped; exit 130' INT; echo on; sleep 50")
    terminal.wait_for("on")
    terminal.press(CTRL_C)
    assert terminal.done(status=130).splitlines() == ["on", "^Cstopped"]


def test_what_is_not_seen_in_time_fails_with_the_screen(terminal: Terminal) -> None:
    terminal.start("echo something else; sleep 20")
    with pytest.raises(AssertionError, match=r"'tea' was not seen within 1 s(?s:.*)something else"):
        terminal.wait_for("tea", seconds=1)
    terminal.close()


def test_a_transcript_has_commands_files_and_remarks_and_no_path_of_the_machine(begin: Callable[..., Journey]) -> None:
    journey = begin("a-name", "A title", "shop")
    journey.remark("First a file.")
    journey.write("a.txt", "text\n")
    journey.run("cat a.txt; pwd; seq 200")
    lines = journey.transcript().splitlines()
    assert lines[:12] == ["# A title", "", "First a file.", "", "`a.txt`:", "", "```text", "text", "```", "", "```text",
                          "$ cat a.txt; pwd; seq 200"]  # fmt: skip
    assert lines[12:14] == ["text", "/home/ada/shop"]
    assert "[… 136 lines]" in lines
    assert lines[-2:] == ["200", "```"]
    assert commands_of(journey.transcript()) == ["cat a.txt; pwd; seq 200"]
