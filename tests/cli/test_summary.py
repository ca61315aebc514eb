"""What a person reads of a run."""

import io
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Literal

from rich.console import Console

from cookhouse.cli.summary import PreviewSink, print_plan, print_previews, print_summary
from cookhouse.diagnosis import Finding
from cookhouse.runs import AnswerSample, Figure, RunPlan, RunSummary
from cookhouse.telemetry import Event, make_console


def console(*, color: bool = False) -> Console:
    system: Literal["standard"] | None = "standard" if color else None
    return Console(file=io.StringIO(), color_system=system, width=100, highlight=False, markup=False, soft_wrap=True)


def text_of(out: Console) -> str:
    assert isinstance(out.file, io.StringIO)
    return out.file.getvalue()


def summary(**changes: object) -> RunSummary:
    values: dict[str, object] = {
        "recipe": "supervised",
        "model_name": "cookhouse/tiny",
        "folder": Path("runs/x"),
        "is_interrupted": False,
        "num_steps": 10,
        "total_steps": 10,
        "seconds": 61.4,
        "figures": (
            Figure(name="test/nll", label="held-out loss (nats per token)", before=2.5, after=0.125),
            Figure(name="test/exact_match", label="held-out exact match", before=0.0, after=0.875, is_share=True),
        ),
        "samples": (AnswerSample(prompt="2 [b]+ 2?\nquick", expected="4", before="five", after=" 4\n"),),
        "report": Path("runs/x/report.html"),
        "state_path": "tinker://s",
        "sampler_path": "tinker://w",
        "next_command": "cookhouse sample runs/x 'hi'",
    }
    return RunSummary(**{**values, **changes})  # type: ignore[arg-type]


def test_summary_has_before_and_after_and_what_to_type() -> None:
    out = console()
    print_summary(out, summary(), ".venv/bin/cookhouse")
    lines = text_of(out).splitlines()
    assert "supervised of cookhouse/tiny: done after 10 of 10 steps, 61 s" in lines
    assert [line.split()[-2:] for line in lines if "loss (nats" in line] == [["2.5", "0.125"]]
    assert [line.split()[-2:] for line in lines if "exact match" in line] == [["0%", "87.5%"]]
    assert "prompt    2 [b]+ 2? ⏎ quick" in lines, "markup in a prompt must be shown, not obeyed"
    assert "before    five" in lines
    assert "after     4 ✓" in lines
    assert "run directory  runs/x" in lines
    assert "report         runs/x/report.html" in lines
    assert "page           .venv/bin/cookhouse view runs/x" in lines
    assert "next           .venv/bin/cookhouse sample runs/x 'hi'" in lines


def test_a_long_prompt_has_its_question() -> None:
    """Catches a prompt that is cut where the question stands: behind a system message and the tools."""
    out = console()
    prompt = "# Tools\n" + "You may call. " * 30 + "What does the bread cost?"
    sample = AnswerSample(prompt=prompt, expected="", before="", after="55")
    print_summary(out, summary(samples=[sample]), "cookhouse")
    (prompt,) = [line for line in text_of(out).splitlines() if line.startswith("prompt ")]
    assert prompt.startswith("prompt    # Tools")
    assert prompt.endswith("What does the bread cost?")


def test_what_the_figures_come_to_stands_below_them() -> None:
    out = console()
    print_summary(out, summary(remark="They part after step 5."), "cookhouse")
    lines = text_of(out).splitlines()
    held_out = next(index for index, line in enumerate(lines) if "exact match" in line)
    assert lines[held_out : held_out + 3][1:] == ["", "They part after step 5."]


def test_what_the_metrics_show_to_be_wrong_stands_below_the_figures() -> None:
    finding = Finding(
        name="tool_errors",
        severity="critical",
        step=4,
        title="100% of tool calls were errors\x1b[2J",
        evidence={"env/all/tool_errors": 1.0},
        advice="read a rollout",
    )
    out = console()
    print_summary(out, summary(findings=[finding]), "cookhouse")
    lines = text_of(out).splitlines()
    at = next(index for index, line in enumerate(lines) if line.startswith("diagnosis"))
    assert "100% of tool calls were errors" in lines[at]
    assert "\x1b" not in lines[at]
    assert lines[at + 1] == "try            read a rollout"


def test_a_question_has_its_conversation_above_it() -> None:
    # Catches "Where?" alone, of which nobody can say what a right answer is.
    earlier = (("system", "Be brief."), *(("user", f"turn {number}\x1b[2J") for number in range(4)))
    out = console()
    few, many = (
        AnswerSample(prompt="Where?", earlier=some, expected="", before=None, after="There.")
        for some in (earlier[:2], earlier)
    )
    print_summary(out, summary(samples=(few, many)), "cookhouse")
    assert (
        "\nearlier   system: Be brief.\n          user: turn 0\\x1b[2J\nprompt    Where?\nafter     There.\n"
        in text_of(out)
    )
    assert "\nearlier   system: Be brief.\n          … 1 more message\n          user: turn 1\\x1b[2J\n" in text_of(out)


def test_an_answer_cannot_play_with_the_terminal() -> None:
    out = console()
    odd = (AnswerSample(prompt="p", expected="e", before="\x1b[2J\x07hi", after="  "),)
    print_summary(out, summary(samples=odd), "cookhouse")
    assert "before    \\x1b[2J\\x07hi\n" in text_of(out)
    assert "after     (nothing)\n" in text_of(out)


def test_what_was_not_measured_is_no_zero() -> None:
    out = console()
    nothing = Figure(name="test/nll", label="held-out loss", before=None, after=None)
    half = Figure(name="test/exact_match", label="exact match", before=None, after=0.5, is_share=True)
    print_summary(out, summary(figures=(nothing,), samples=()), "cookhouse")
    assert "held-out" not in text_of(out)
    out = console()
    both = Figure(name="test/loss", label="loss", before=1.0, after=0.5)
    print_summary(out, summary(figures=(nothing, half, both)), "cookhouse")
    assert [line.split()[-2:] for line in text_of(out).splitlines() if "exact match" in line] == [["-", "50%"]]


def test_errors_stand_beside_the_values_and_say_what_they_are() -> None:
    # Catches ± 0% where all answers agree, and an error of which nobody knows the kind.
    right = Figure(name="test/exact_match", label="exact match", before=0.0, after=1.0, is_share=True, stderr=0.0, n=6)
    loss = Figure(name="test/nll", label="held-out loss", before=2.5, after=0.5123, stderr=0.0234)
    out = console()
    print_summary(out, summary(figures=(right, loss)), "cookhouse")
    assert re.search(r"exact match +0% +100%, 61 to 100%, of 6\n", text_of(out))
    assert re.search(r"held-out loss +2\.5 +0\.512 ± 0\.023\n", text_of(out))
    assert "95% interval of a share" in text_of(out)
    plain = console()
    print_summary(plain, summary(), "cookhouse")
    assert "interval" not in text_of(plain)


def test_an_interrupted_run_says_how_to_continue() -> None:
    out = console()
    command = "cookhouse run supervised log_path=runs/x behavior_if_log_dir_exists=resume"
    print_summary(out, summary(is_interrupted=True, num_steps=4, next_command=command), "python -m cookhouse")
    assert "interrupted and saved after 4 of 10 steps" in text_of(out)
    nothing_saved = console()
    print_summary(nothing_saved, summary(is_interrupted=True, num_steps=0, state_path=None), "cookhouse")
    assert "interrupted after 0 of 10 steps" in text_of(nothing_saved)
    assert text_of(out).endswith(
        "to continue    python -m cookhouse run supervised log_path=runs/x behavior_if_log_dir_exists=resume\n"
    )


def test_trained_text_stands_out_with_and_without_color() -> None:
    pieces = [("user: hi\n", False), ("hello", True)]
    plain, colored = console(), console(color=True)
    print_previews(plain, [pieces])
    print_previews(colored, [pieces])
    assert "user: hi\n⟦hello⟧" in text_of(plain)
    assert "\x1b[1;32mhello\x1b[0m" in text_of(colored)


def test_what_looks_like_markup_or_an_emoji_code_is_shown_as_it_stands() -> None:
    out = make_console()
    out.file = io.StringIO()
    print_previews(out, [[("ratio 3:x:4 [b]", False)]])
    print_summary(out, summary(samples=(AnswerSample(prompt="a :x: b", expected="[b]", before=None, after=None),)), "c")
    text = text_of(out)
    assert "ratio 3:x:4 [b]\n" in text
    assert "prompt    a :x: b\nexpected  [b]\n" in text


def test_a_long_example_is_cut() -> None:
    out = console()
    print_previews(out, [[("u" * 300, False), ("a" * 400, True), ("z", False)]])
    # Catches a preview in which nobody sees where training ends.
    shown = "u" * 300 + "⟦" + "a" * 150 + "…(100 characters)…" + "a" * 150 + "⟧z"
    assert text_of(out).splitlines()[-1] == shown
    many = [(f"u{n} ", False) if n % 2 else (f"a{n} ", True) for n in range(20)]
    print_previews(out, [many])
    assert text_of(out).endswith("⟦a0 ⟧u1 ⟦a2 ⟧u3 \n…(12 further stretches)…\n⟦a16 ⟧u17 ⟦a18 ⟧u19 \n")


def test_a_long_prompt_does_not_hide_where_training_begins() -> None:
    # Catches a preview that ends within the prompt, with no trained token in it.
    out = console()
    print_previews(out, [[("<" + "u" * 9998 + ">", False), ("answer", True)]])
    shown = text_of(out).splitlines()[-1]
    assert shown == "<" + "u" * 149 + "…(9,700 characters)…" + "u" * 149 + ">⟦answer⟧"


def test_a_run_shows_the_examples_that_it_announces() -> None:
    out = console()
    sink = PreviewSink(out)
    sink.write(Event(name="data.preview", text={"pieces": json.dumps([("user: hi\n", False), ("hello", True)])}))
    sink.write(Event(name="stage.start", text={"stage": "init_session"}))
    assert text_of(out) == "\nan example, trained on what is in ⟦⟧\nuser: hi\n⟦hello⟧\n"


def test_a_plan_names_its_figures() -> None:
    out = console()
    plan = RunPlan(
        recipe="supervised",
        config={"batch_size": 8},
        folder=Path("runs/x"),
        facts={"tokens": "40,000, of which 10,000 (25.0%) are trained on", "steps": "500 in all"},
        previews=(),
    )
    print_plan(out, plan)
    text = text_of(out)
    assert "tokens           40,000, of which 10,000 (25.0%) are trained on" in text
    assert "run directory    runs/x" in text


def test_a_plan_comes_before_its_settings_and_shows_those_that_somebody_set() -> None:
    """Catches a plan that stands below a screen of defaults."""
    plan = RunPlan(
        recipe="supervised",
        config={"batch_size": 8, "seed": 0, "columns": "a\x1b[2Jb"},
        changed={"batch_size": 8},
        folder=Path("runs/x"),
        facts={"steps": "500 in all"},
    )
    out, whole, bare = console(), console(), console()
    print_plan(out, plan)
    title = "settings that are not the defaults; --verbose shows all 3"
    assert text_of(out).splitlines()[-3:] == ["", title, "  batch_size = 8"]
    print_plan(whole, plan, every_setting=True)
    assert text_of(whole).endswith("\nsettings\n  batch_size = 8\n  seed = 0\n  columns = a\\x1b[2Jb\n")
    print_plan(bare, replace(plan, changed={}))
    assert text_of(bare).endswith("\nall settings are the defaults; --verbose shows all 3\n")
