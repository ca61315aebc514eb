"""Plan and summary of a run in the terminal, before and after it."""

import json
import shlex
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from cookhouse.cli.tables import shortened, side_by_side
from cookhouse.diagnosis import Finding
from cookhouse.errors import printable
from cookhouse.runs import AnswerSample, RunPlan, RunSummary
from cookhouse.runs.history.facts import usage_text
from cookhouse.telemetry import (
    ERRORS_IN_WORDS,
    Event,
    Metric,
    Record,
    by_weight,
    events,
    in_view,
    measured_parts,
    say,
    say_command,
    say_fact,
    wrapped,
)

if TYPE_CHECKING:
    from cookhouse.sweeps.record import SweepRecord
    from cookhouse.sweeps.state import SweepState

_ANSWER_CHARACTERS = 100
_EARLIER_MESSAGES = 4
"""Shown of those before the one that was asked."""
_PREVIEW_PIECES = 8
_PIECE_CHARACTERS = 300
"""Of a stretch that is not trained on: longer ones lose their middle, so that one sees where training begins."""
_LABEL_CELLS = 32


def print_plan(console: Console, plan: RunPlan, *, every_setting: bool = False) -> None:
    """Print the steps of a run, the first of its notes, and the settings that are not the defaults; or all of both."""
    say(console, f"{plan.recipe} on this plan; nothing was trained, no request was made\n")
    say(console, "plan")
    for name, fact in {**plan.facts, "run directory": str(plan.folder)}.items():
        say_fact(console, f"  {name:<16}", fact)
    notes, more = in_view(by_weight(plan.notes), is_whole=every_setting)
    for note in notes:
        say_fact(console, f"  {'note':<16}", printable(note))
    if more:
        say(console, f"  {'':<16} {more}")
    title = "settings that are not the defaults" if plan.changed else "all settings are the defaults"
    say(console, "\nsettings" if every_setting else f"\n{title}; --verbose shows all {len(plan.config)}")
    for name, value in (plan.config if every_setting else plan.changed).items():
        say(console, f"  {name} = {printable(str(value))}")
    print_previews(console, plan.previews, is_whole=every_setting)


def print_previews(console: Console, previews: Iterable[Sequence[tuple[str, bool]]], *, is_whole: bool = False) -> None:
    """The first examples: what is trained on is green and, where there is no color, stands in ⟦⟧. Long stretches lose
    their middle, unless all is to be shown.
    """
    from cookhouse.evals import preview_plain, preview_rich  # loads the SDK

    has_color = console.color_system is not None
    for pieces in previews:
        say(console, "\nan example, trained on what is " + ("green" if has_color else "in ⟦⟧"))
        shown = pieces if is_whole else _shortened(pieces)
        say(console, preview_rich(shown) if has_color else preview_plain(shown))


class PreviewSink:
    """Prints each example that a run shows before it trains: event `data.preview`, `pieces` a JSON list of pairs."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def write(self, record: Record) -> None:
        if isinstance(record, Event) and record.name == events.DATA_PREVIEW:
            print_previews(self._console, [json.loads(record.text["pieces"])])

    def close(self) -> None:
        """Nothing is held."""


def _shortened(pieces: Sequence[tuple[str, bool]]) -> list[tuple[str, bool]]:
    """Pieces that fit a preview. Each begins and ends as it does, so that one sees where training does; of many, the
    first and the last are shown.
    """
    if len(pieces) > _PREVIEW_PIECES:
        half = _PREVIEW_PIECES // 2
        left_out = (f"\n…({len(pieces) - 2 * half:,} further stretches)…\n", False)
        return [*_shortened(pieces[:half]), left_out, *_shortened(pieces[-half:])]
    return [(_ends(text), is_trained) for text, is_trained in pieces]


def _ends(text: str) -> str:
    half = _PIECE_CHARACTERS // 2
    num_left_out = len(text) - 2 * half
    return text if num_left_out <= 0 else f"{text[:half]}…({num_left_out:,} characters)…{text[-half:]}"


def print_summary(console: Console, summary: RunSummary, program: str) -> None:
    """Print the results of a run, and the commands to type next; `program` is how the user calls cookhouse."""
    done = "done"
    if summary.is_interrupted:
        how = "paused" if summary.is_paused else "interrupted"
        done = f"{how} and saved" if summary.state_path else how
    steps = f" after {summary.num_steps} of {summary.total_steps} steps" if summary.total_steps else ""
    say(console, f"\n{summary.recipe} of {summary.model_name}: {done}{steps}, {summary.seconds:.0f} s")
    measured = [figure for figure in summary.figures if (figure.before, figure.after) != (None, None)]
    width = max(12, min(_LABEL_CELLS, console.width - 21)) if console.is_terminal else _LABEL_CELLS
    has_before = any(figure.before is not None for figure in measured)
    if measured:
        say(console, f"\n{'':<{width}}{'before':>10}{'after':>10}" if has_before else "", style="dim")
    for figure in measured:
        metric = Metric(figure.name, is_share=figure.is_share)
        after, error = measured_parts(metric, figure.after, figure.stderr, figure.n)
        values = f"{metric.text(figure.before):>10}{after:>10}" if has_before else f"{after:>10}"
        values += error
        *above, last = [line.plain.rstrip() for line in wrapped(Text(figure.label), width)]
        say(console, "\n".join([*above, f"{last:<{width}}{values}"]), style="bold")
    if any(figure.stderr is not None or figure.n is not None for figure in measured):
        say(console, f"({ERRORS_IN_WORDS})", style="dim")
    if summary.stopped is not None:
        say(console, f"\n{summary.stopped}")
    if summary.findings:
        say(console, "")
        print_findings(console, summary.findings)
    if summary.remark is not None:
        say(console, f"\n{summary.remark}")
    for sample in summary.samples:
        _print_sample(console, sample)
    if summary.synthetic:
        say(console, f"\nsynthetic      no-op adapters made it up: {', '.join(summary.synthetic)}", style="bold")
    say(console, "")
    told = {
        "run directory": summary.folder,
        "report": summary.report,
        "page": f"{program} view {shlex.quote(str(summary.folder))}",
        "best": summary.best,
        "weights": summary.sampler_path,
        "usage": summary.usage_text or (None if summary.usage is None else usage_text(summary.usage)),
        "cost": summary.cost,
        "registered": summary.registered_model,
    }
    for label, fact in told.items():
        if fact is not None:
            say_fact(console, f"{label:<14}", str(fact))
    command = f"{program} {summary.next_command.removeprefix('cookhouse ')}"
    say_command(console, f"{'to continue' if summary.is_interrupted else 'next':<14}", command)


def print_findings(console: Console, findings: Iterable[Finding]) -> None:
    """Findings in the metrics of a run, each with what to try."""
    for finding in findings:
        say_fact(console, f"{'diagnosis':<14}", printable(finding.title))
        say_fact(console, f"{'try':<14}", printable(finding.advice))


def _print_sample(console: Console, sample: AnswerSample) -> None:
    say(console, "")
    for label, line in zip(("earlier", *[""] * len(sample.earlier)), _earlier(sample.earlier), strict=False):
        say(console, f"{label:<9} {line}")
    say_fact(console, f"{'prompt':<9}", shortened(_whole_line(sample.prompt), _ANSWER_CHARACTERS))
    if sample.expected:
        say(console, f"expected  {_one_line(sample.expected)}")
    for label, answer in (("before", sample.before), ("after", sample.after), ("teacher", sample.teacher)):
        if answer is not None:
            is_right = bool(sample.expected) and answer.strip() == sample.expected.strip()
            style = "green" if is_right else "red" if sample.expected else ""
            say(console, Text(f"{label:<9} ").append(_one_line(answer), style=style).append(" ✓" if is_right else ""))


def _earlier(messages: Sequence[tuple[str, str]]) -> list[str]:
    """A line for each message before the one that was asked; of many, the first and the last."""
    lines = [_one_line(f"{role}: {text}") for role, text in messages]
    num_more = len(lines) - _EARLIER_MESSAGES
    if num_more <= 0:
        return lines
    return [lines[0], f"… {num_more:,} more message{'s' * (num_more > 1)}", *lines[1 - _EARLIER_MESSAGES :]]


def _one_line(text: str) -> str:
    """Text on one line, cut to a readable length."""
    line = _whole_line(text)
    return line[: _ANSWER_CHARACTERS - 1] + "…" if len(line) > _ANSWER_CHARACTERS else line or "(nothing)"


def _whole_line(text: str) -> str:
    return printable(" ⏎ ".join(text.strip().splitlines()))


def print_failed_sweep(console: "Console", state: "SweepState", program: str) -> None:
    """Say that every run of a sweep failed; why was said when they did."""
    say(console, f"\nsweep of {state.config.recipe}: all {len(state.runs)} runs failed, as said above", style="red")
    if state.folder.path.is_dir():
        say_fact(console, f"{'run directory':<14}", str(state.folder.path))
        resume = f"{program} runs resume {shlex.quote(str(state.folder.path))}"
        say_command(console, f"{'to continue':<14}", resume)


def print_sweep(console: "Console", sweep: "SweepRecord") -> None:
    """The runs of a sweep, the best of them, and why others failed."""
    from cookhouse.report import setting_text
    from cookhouse.sweeps.record import best_text, by_error
    from cookhouse.telemetry import say

    table, width = sweep.table, console.width if console.is_terminal else None
    metric = table.metric
    steps = ["steps"] if table.has_steps else []
    header = ["run", *table.swept, "state", *steps, *([] if metric is None else [f"{metric.name} (* best)"])]
    rows = [
        [
            row.name,
            *(setting_text(value) for value in row.settings.values()),
            row.state,
            *(["-" if row.steps is None else f"{row.steps:,}"] if table.has_steps else []),
            *([] if metric is None else [table.text(row) + " *" * row.is_best]),
        ]
        for row in table.rows
    ]
    say(console, "")
    for line in side_by_side(header, rows, width):
        say(console, line)
    say(console, f"\nbest         {printable(best_text(sweep))}")
    for error, names in by_error(sweep.errors).items():
        say(console, printable(f"failed       {', '.join(names)}: {error}"), style="red")
    for name, problem in sweep.problems.items():
        say(console, printable(f"unreadable   {name}: {problem}"), style="red")
