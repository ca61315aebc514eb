import io
import shlex
from collections.abc import Callable, Sequence

import pytest
from rich.console import Console

from cookhouse.telemetry import (
    Event,
    Metric,
    Record,
    Span,
    TerminalSink,
    declare_metric,
    say,
    say_command,
    say_fact,
    terminal,
)


def step(number: int, *, seconds: float, total: int = 10, left: tuple[float, float] | None = None) -> Event:
    """A step that took so long; `left`: the least and the most seconds that the run has left."""
    metrics = {"train/loss": 1.25, "train/num_tokens": 300.0, "time/step_seconds": seconds, "total_steps": total}
    ends = {} if left is None else dict(zip(("seconds_left_low", "seconds_left_high"), left, strict=True))
    return Event(name="training.step", step=number, metrics={**metrics, **ends})


def printed(records: Sequence[Record], *, is_terminal: bool) -> str:
    out = io.StringIO()
    sink = TerminalSink(Console(file=out, force_terminal=is_terminal, width=100))
    for record in records:
        sink.write(record)
    sink.close()
    return out.getvalue()


START = Event(
    name="run.start", metrics={"total_steps": 10.0}, text={"recipe": "supervised", "model": "m", "folder": "runs/[x]"}
)


def test_step_shows_loss_pace_and_time_left() -> None:
    out = printed([START, step(1, seconds=1.0), step(10, seconds=2.0, left=(0.0, 0.0))], is_terminal=False)
    assert "supervised of m in runs/[x]" in out
    assert "step 1/10  loss 1.2500  300 tokens/s\n" in out
    assert "step 10/10  loss 1.2500  200 tokens/s  0:00 left" in out


def test_the_command_for_the_page_is_said_once() -> None:
    # Catches a line that a shell reads otherwise, and one for each run of those that a run consists of.
    out = printed([START, step(1, seconds=1.0), START], is_terminal=False)
    assert [line for line in out.splitlines() if line.startswith("page")] == [
        "page: open it with cookhouse view 'runs/[x]'"
    ]


def test_a_finding_is_said_with_what_to_try() -> None:
    text = {"finding": "x", "severity": "critical", "text": "0 of 64 groups differ", "advice": "easier problems"}
    out = printed([START, Event(name="run.finding", step=4, text=text)], is_terminal=False)
    assert "diagnosis after step 4: 0 of 64 groups differ\n  try: easier problems\n" in out


def test_a_resumed_run_says_where_it_goes_on() -> None:
    resumed = Event(name="run.start", step=21, metrics={"total_steps": 60.0}, text=START.text)
    assert "supervised of m in runs/[x], going on after step 21 of 60\n" in printed([resumed], is_terminal=False)


def test_a_run_that_trains_nothing_speaks_of_no_training() -> None:
    # Catches "evaluation before training" of somebody who only evaluates.
    evaluated = Event(name="eval.complete", step=0, metrics={"sums/correct": 0.5})
    assert "\nevaluation before training: sums/correct 50%" in printed([START, evaluated], is_terminal=False)
    alone = Event(name="run.start", text=START.text)
    assert "\nevaluation: sums/correct 50%" in printed([alone, evaluated], is_terminal=False)


def test_terminal_shows_the_same_on_a_line_that_it_redraws() -> None:
    # 600 tokens in 4 s, two steps: 150 tokens/s.
    out = printed([START, step(1, seconds=1.0), step(2, seconds=3.0, left=(130.0, 250.0))], is_terminal=True)
    assert "supervised of m in runs/[x]" in out
    assert "step 2/10  loss 1.2500  150 tokens/s  2 to 4 min left" in out
    assert "\x1b[2K" in out


def test_pipe_gets_plain_lines() -> None:
    out = printed([START, *(step(number, seconds=0.01) for number in range(1, 11))], is_terminal=False)
    assert "\x1b" not in out
    assert "\r" not in out
    # Steps that follow one another within two seconds are not all printed; the first and the last are.
    assert [line.split()[1] for line in out.splitlines() if line.startswith("step")] == ["1/10", "10/10"]


class Clock:
    """Timers that go off when the test says so."""

    def __init__(self) -> None:
        self._waiting: list[tuple[object, Callable[..., None], Sequence[str]]] = []
        clock = self

        class Timer:
            def __init__(self, seconds: float, function: Callable[..., None], arguments: Sequence[str]) -> None:
                assert seconds > 0
                self._call = (self, function, arguments)

            def start(self) -> None:
                clock._waiting.append(self._call)

            def cancel(self) -> None:
                clock._waiting = [call for call in clock._waiting if call[0] is not self]

        self.timer = Timer

    def go_off(self) -> None:
        waiting, self._waiting = self._waiting, []
        for _, function, arguments in waiting:
            function(*arguments)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(terminal, "Timer", made.timer)
    return made


def stage(name: str, doing: str) -> Event:
    return Event(name="stage.start", text={"stage": name, "doing": doing})


def test_a_pipe_tells_in_words_what_takes_its_time_and_nothing_of_the_rest(clock: Clock) -> None:
    """Catches names of functions before the eyes of users, and a line for each stage that ends at once."""
    out = io.StringIO()
    sink = TerminalSink(Console(file=out, width=100))
    sink.write(stage("init_tokenizer", "loading the tokenizer"))
    sink.write(Span(name="init_tokenizer", start_seconds=1.0, end_seconds=1.1))
    clock.go_off()
    assert out.getvalue() == "", "it was over"
    sink.write(stage("init_session", "loading the model"))
    sink.write(Event(name="stage.part", text={"doing": "starting the engine"}))
    sink.write(Span(name="get_batch", start_seconds=1.0, end_seconds=1.1))
    clock.go_off()
    sink.write(Span(name="init_session", start_seconds=1.1, end_seconds=9.0))
    sink.write(stage("save_final", "saving the weights"))
    sink.close()
    clock.go_off()
    assert out.getvalue() == "starting the engine\n"


def test_a_terminal_shows_at_once_what_is_being_done() -> None:
    out = printed([START, stage("init_session", "loading the model"), step(1, seconds=1.0)], is_terminal=True)
    assert "loading the model" in out
    assert "init_session" not in out


def test_what_a_run_waits_for_is_a_line() -> None:
    waiting = Event(name="run.waiting", metrics={"seconds": 30.2}, text={"what": "optim_step of step 4"})
    assert "still waiting for optim_step of step 4 (30 s)" in printed([START, waiting], is_terminal=False)


def test_figures_that_were_not_measured_are_not_shown() -> None:
    evaluation = Event(name="eval.complete", step=0, metrics={"test/nll": 2.5})
    assert "evaluation before training: held-out loss 2.5000\n" in printed([START, evaluation], is_terminal=False)
    metrics = {name: value for name, value in step(1, seconds=1.0).metrics.items() if name != "train/loss"}
    bare = Event(name="training.step", step=1, metrics=metrics)
    assert "step 1/10  300 tokens/s" in printed([START, bare], is_terminal=False)


@pytest.mark.parametrize(("seconds", "shown"), [(59.6, "1:00"), (3700, "1:01:40")])
def test_time_left_reads_as_a_clock(seconds: float, shown: str) -> None:
    last = step(9, seconds=1.0, left=(seconds, seconds))
    assert f"{shown} left" in printed([START, last], is_terminal=False)


LONG = "waiting for a supercalifragilisticexpialidocious-answer-of-the-service in a folder called runs/x"


@pytest.mark.parametrize("width", [20, 48, 80, 200])
def test_lines_on_a_terminal_break_between_words_only(width: int) -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=width, color_system=None)
    say(console, f"{LONG}\n\n  indented", style="bold")
    assert isinstance(console.file, io.StringIO)
    lines = console.file.getvalue().splitlines()
    assert " ".join(lines).split() == f"{LONG} indented".split(), "a word was broken, or lost"
    assert all(len(line) <= width or " " not in line.strip() for line in lines)
    assert lines[-2:] == ["", "  indented"], "line breaks of its own are kept"


def test_lines_in_a_pipe_never_break() -> None:
    console = Console(file=io.StringIO(), width=20)
    say(console, LONG)
    assert isinstance(console.file, io.StringIO)
    assert console.file.getvalue() == LONG + "\n"


@pytest.mark.parametrize("width", [30, 48, 200])
def test_a_command_can_be_copied_from_a_narrow_terminal(width: int) -> None:
    command = "cookhouse run supervised 'log_path=runs/a b' behavior_if_log_dir_exists=resume"
    console = Console(file=io.StringIO(), force_terminal=True, width=width, color_system=None)
    say_command(console, "to continue ", command)
    assert isinstance(console.file, io.StringIO)
    printed = console.file.getvalue().removeprefix("to continue").strip()
    assert shlex.split(printed.replace("\\\n", "")) == shlex.split(command), "a shell would run it in pieces"


@pytest.mark.parametrize("width", [44, 60, 200])
def test_a_fact_stands_below_itself_behind_its_label(width: int) -> None:
    """Catches lines that go on at the edge of the terminal, below the labels."""
    fact = "at most 6,144 tokens sampled, and evaluations on top of that"
    console = Console(file=io.StringIO(), force_terminal=True, width=width, color_system=None)
    say_fact(console, "  usage         ", fact)
    assert isinstance(console.file, io.StringIO)
    first, *others = console.file.getvalue().splitlines()
    assert bool(others) is (width < 77)
    assert first.startswith("  usage          at most")
    assert all(line.startswith(" " * 17) and len(line) <= width and line[17] != " " for line in others)
    assert " ".join(" ".join([first, *others]).split()) == f"usage {fact}"


def test_a_path_behind_a_label_is_whole_where_a_line_holds_it() -> None:
    """Catches a path that the terminal breaks, although it would fit below its label."""
    path = "tinker://" + "0123456789" * 3
    console = Console(file=io.StringIO(), force_terminal=True, width=44, color_system=None)
    say_fact(console, "weights     ", path)
    assert isinstance(console.file, io.StringIO)
    assert console.file.getvalue().splitlines() == ["weights", path]


def test_a_fact_that_goes_to_a_file_is_one_line() -> None:
    console = Console(file=io.StringIO(), width=40)
    say_fact(console, "usage", "one two three " * 9)
    assert isinstance(console.file, io.StringIO)
    assert len(console.file.getvalue().splitlines()) == 1


def test_the_line_of_a_step_leaves_out_what_has_no_room() -> None:
    def drawn(width: int) -> str:
        out = io.StringIO()
        sink = TerminalSink(Console(file=out, force_terminal=True, width=width, color_system=None))
        sink.write(step(1, seconds=1.0, left=(9.0, 9.0)))
        sink.close()
        return out.getvalue()

    assert "step 1/10  loss 1.2500  300 tokens/s  0:09 left" in drawn(60)
    assert "step 1/10  loss 1.2500  0:09 left" in drawn(48)
    assert "step 1/10  loss 1.2500 " in drawn(28)
    assert all("…" not in drawn(width) for width in (60, 48, 28)), "a word was cut"


def test_a_run_over_preferences_shows_accuracy_and_margin() -> None:
    metrics = {"train/dpo_loss": 0.5, "train/accuracy": 0.75, "train/margin": 0.25, "train/num_tokens": 300.0}
    trained = Event(name="training.step", step=1, metrics={**metrics, "time/step_seconds": 1.0, "total_steps": 1})
    held_out = {"test/accuracy": 0.9, "test/accuracy_n": 40.0, "test/margin": -0.5, "test/answered_chosen": 0.25}
    evaluation = Event(name="eval.complete", step=1, metrics=held_out)
    out = printed([START, trained, evaluation], is_terminal=False)
    assert "step 1/1  loss 0.5000  accuracy 75%  margin +0.250  300 tokens/s" in out
    assert "after step 1: accuracy 90%, 77 to 96%, of 40; margin -0.500; 25.0% answered as chosen" in out


def test_held_out_figures_have_their_error_and_their_number() -> None:
    """Catches a mean that is told without how sure it is."""
    reward = {"test/env/all/reward/total": 0.5, "test/env/all/reward/total_stderr": 0.0512}
    found = {**reward, "test/env/all/total_episodes": 12.0, "test/env/all/correct": 0.5}
    evaluation = Event(name="eval.complete", step=2, metrics=found)
    told = "after step 2: mean reward 0.500 ± 0.051; 12 held-out attempts\n"
    assert told in printed([START, evaluation], is_terminal=False)


def test_truncated_answers_are_told_where_there_are_some() -> None:
    # Catches a limit of the measurement that reads as a wrong answer.
    def told(truncated: float) -> str:
        found = {"test/exact_match": 0.5, "test/truncated": truncated}
        return printed([START, Event(name="eval.complete", step=2, metrics=found)], is_terminal=False)

    assert "after step 2: exact match 50.0%; 40% of answers truncated at eval_max_tokens\n" in told(0.4)
    assert "truncated" not in told(0.0)


@pytest.mark.usefixtures("nothing_declared")
def test_a_metric_of_ones_own_is_told_as_it_says() -> None:
    """Catches a user's metric that a step does not tell, and one that nobody declared left out of an evaluation."""
    found = {"test/sums/right": 0.5, "test/sums/right_n": 8.0}
    evaluation = Event(name="eval.complete", step=2, metrics=found)
    assert "after step 2: sums/right 0.5, of 8\n" in printed([START, evaluation], is_terminal=False)
    declare_metric(Metric("critic/explained", line="explained {:.1%}"))
    declare_metric(Metric("right", is_share=True))
    trained = step(1, seconds=1.0)
    known = Event(name=trained.name, step=1, metrics={**trained.metrics, "critic/explained": 0.75})
    out = printed([START, known, evaluation], is_terminal=False)
    assert "step 1/10  loss 1.2500  explained 75.0%  300 tokens/s" in out
    assert "after step 2: sums/right 50%, 22 to 78%, of 8\n" in out
