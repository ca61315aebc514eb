"""Summary of a run besides its curves, as plain values: the page is made of it, and JSON has the same."""

from collections.abc import Mapping, Sequence
from typing import Any

from cookhouse.diagnosis import Finding, is_read
from cookhouse.errors import InputError
from cookhouse.pages import run_address
from cookhouse.report.columns import MetricColumns
from cookhouse.report.examples import asked_questions, evaluation_text
from cookhouse.report.held_out import held_out_table
from cookhouse.runs.findings import findings_of, read_checkpoints
from cookhouse.runs.history.facts import duration, facts_of, place_of
from cookhouse.runs.history.launches import RunStatus
from cookhouse.runs.listing.find import FoundRun
from cookhouse.runs.listing.overview import RunOverview, overview_of
from cookhouse.runs.names import TRACE_FILE
from cookhouse.runs.reading.checkpoints import SavedWeights, saved_weights, started_from, started_runs
from cookhouse.runs.reading.commands import export_command, run_commands
from cookhouse.runs.reading.progress import RunProgress, progress_of
from cookhouse.runs.reading.settings import has_origins, recorded_settings
from cookhouse.runs.reading.stages import stage_times
from cookhouse.runs.record import run_parts
from cookhouse.runs.samples import evaluated_steps, read_answers
from cookhouse.telemetry import after_step, error_text, is_held_out, number, step_number

MAX_CHECKPOINTS = 200
"""Shown of a run, the last ones."""
_MAX_ANSWER_BYTES = 1 << 20
_MAX_QUESTIONS = 3


def summary_of(run: FoundRun, columns: MetricColumns) -> dict[str, Any]:
    """State, headline, progress, evaluations, stages and facts of a run; reads the ends of its files."""
    overview, parts = overview_of(run), run_parts(run.path)
    progress = _progress(overview)
    headline = overview.headline or next((part.headline for part in reversed(parts) if part.headline), None)
    return {
        "name": run.name,
        "number": run.number,
        "parent": run.parent,
        "recipe": overview.recipe,
        "model": overview.model,
        "status": str(overview.status),
        "state_text": _state_text(run, overview),
        "is_synthetic": overview.is_synthetic,
        "headline": None if headline is None else headline.text,
        "stderr": None
        if headline is None or overview.headline is None or overview.stderr is None
        else error_text(headline.metric, overview.stderr),
        "took": place_of(run.history),
        "steps": overview.steps,
        "total_steps": overview.total_steps,
        "progress": None if progress is None else progress.as_json(),
        "progress_text": _progress_text(overview, progress),
        "warnings": list(run.history.warnings),
        "notes": list(run.history.notes),
        "problem": run.problem,
        "gaps": [],
        "findings": [finding.as_json() for finding in _findings(run, columns)],
        "resume": None,
        "done": overview.steps / overview.total_steps if overview.steps and overview.total_steps else None,
        "parts": [
            {
                "name": f"{run.name}/{part.name}",
                "address": run_address(f"{run.name}/{part.name}"),
                "recipe": part.recipe,
                "status": str(part.state),
                "headline": "-" if part.headline is None else part.headline.text,
            }
            for part in parts
        ],
        "held_out": _held_out(run, columns),
        "stages": [
            [
                stage.name,
                f"{stage.count:,}",
                f"{number(stage.mean_seconds)} s",
                f"{number(stage.seconds)} s",
                "-" if stage.last_step is None else f"{step_number(stage.last_step):,}",
                stage.error or "",
            ]
            for stage in stage_times(run.path / TRACE_FILE)
        ],
        "facts": [[name, fact] for name, fact in _facts(run).items()],
    }


def examples_of(run: FoundRun) -> dict[str, Any]:
    """The answers of the first and the last evaluation of a run, where they were kept in files that are not large."""
    files = evaluated_steps(run.path)
    ends = list(dict.fromkeys((min(files), max(files)))) if files else []
    try:
        read = {step: read_answers(files[step]) for step in ends if files[step].stat().st_size <= _MAX_ANSWER_BYTES}
    except (InputError, OSError):  # the page of answers says what is wrong
        read = {}
    answered = {after_step(step): answers for step, answers in read.items() if answers}
    questions = asked_questions(answered)
    return {
        "evaluations": [evaluation_text(when, answers) for when, answers in answered.items()],
        "questions": questions[:_MAX_QUESTIONS],
        "num_more_questions": max(0, len(questions) - _MAX_QUESTIONS),
        "page_groups": [],
    }


def checkpoints_of(run: FoundRun, runs: Sequence[FoundRun]) -> dict[str, Any]:
    """Checkpoints of a run, with their origin, their results, and the commands that go on with them."""
    try:
        saved, problem = saved_weights(run), None
    except InputError as error:
        saved, problem = [], str(error)
    shown = saved[-MAX_CHECKPOINTS:]
    commands = run_commands(run, [each.checkpoint for each in saved])
    return {
        "checkpoints": [_checkpoint(run, each) for each in reversed(shown)],
        "num_checkpoints": len(saved),
        "checkpoints_problem": problem,
        "started_from": [
            {"setting": each.setting, "name": each.name, "run": each.run} for each in started_from(run, runs)
        ],
        "started_runs": started_runs(run, runs),
        "commands": [[command.purpose, command.text] for command in commands],
    }


def settings_of(run: FoundRun) -> dict[str, Any]:
    """The settings of a run, those that were set apart from the defaults, as far as that is known."""
    every = recorded_settings(run.record)
    rows = [[each.name, each.text, *filter(None, [each.origin])] for each in every]
    num_shown = sum(each.is_set for each in every) if has_origins(every) else len(rows)
    return {"settings": rows[:num_shown], "defaults": rows[num_shown:], "has_origins": has_origins(every)}


def _progress(overview: RunOverview) -> RunProgress | None:
    return progress_of(overview) if overview.status is RunStatus.RUNNING else None


def _progress_text(overview: RunOverview, progress: RunProgress | None) -> str:
    """Progress of a run, in words: `step 40 of 157, training, about 2:03 left`."""
    steps, total = overview.steps, overview.total_steps
    counted = None if steps is None else f"step {steps:,}" + ("" if total is None else f" of {total:,}")
    told = [counted]
    if progress is not None:
        told.append(progress.doing)
        if progress.waiting_for is not None and progress.waited_seconds is not None:
            told.append(f"waiting for {progress.waiting_for} since {duration(progress.waited_seconds)}")
        told.append(progress.left_text)
    return ", ".join(filter(None, told))


def _state_text(run: FoundRun, overview: RunOverview) -> str:
    return ": ".join(filter(None, (overview.status, overview.error or run.history.launches[-1].stopped)))


def _findings(run: FoundRun, columns: MetricColumns) -> list[Finding]:
    rows = columns.rows(filter(is_read, columns.names))
    return findings_of(rows, run.record.get("config", {}), run.history, lambda: read_checkpoints(run.path))


def _held_out(run: FoundRun, columns: MetricColumns) -> dict[str, Any] | None:
    tested = [columns.curve(name, run.history.declared) for name in columns.names if is_held_out(name)]
    table = held_out_table(tested)
    return None if table is None else {"header": list(table.header), "rows": [list(row) for row in table.rows]}


def _facts(run: FoundRun) -> Mapping[str, str]:
    told = {name: run.record.get(name) for name in ("seed", "version", "revision")}
    return {
        **{name: fact for name, fact in facts_of(run.history).items() if name != "state"},
        **{name: str(value) for name, value in told.items() if value is not None},
        "folder": str(run.path.resolve()),
    }


def _checkpoint(run: FoundRun, saved: SavedWeights) -> dict[str, Any]:
    point = saved.checkpoint
    kinds = {
        "best": bool(point.best),
        "final": point.final,
        "rolling": point.rolling,
    }
    return {
        "name": point.name,
        "step": point.step,
        "kinds": [kind for kind, is_one in kinds.items() if is_one],
        "best_text": saved.best_text,
        "registered_as": saved.registered_as,
        "state_path": point.state_path,
        "sampler_path": point.sampler_path,
        "export": export_command(run, point),
    }
