"""The page of a run: its figures, curves, answers, checkpoints and settings."""

import json
import os
import re
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any
from urllib.parse import quote

from cookhouse.pages import document
from cookhouse.report.columns import MetricColumns
from cookhouse.report.examples import TEACHER, asked_questions, evaluation_text
from cookhouse.report.held_out import held_out_table
from cookhouse.report.overoptimization import overoptimization_chart
from cookhouse.report.record import RunPart, RunRecord, checkpoint_text
from cookhouse.report.run_charts import RunCharts
from cookhouse.telemetry import after_step, step_number
from cookhouse.weights.checkpoints import Checkpoint

_MAX_ANSWERS = 40
_MAX_LINKS = 200


def run_page(record: RunRecord) -> str:
    """One self-contained page of a run, finished or not; what is missing or broken is named on it."""
    settings = record.config.get("config", {})
    columns = MetricColumns(record.metrics)
    charts = RunCharts(columns, record.declared)
    curves = [columns.curve(name, record.declared) for name in columns.names]
    first_step, last_step = columns.step_range()
    answered = {after_step(step): answers for step, answers in record.answers.items() if answers}
    answered |= {TEACHER: record.teacher} if record.teacher else {}
    questions = asked_questions(answered)
    is_synthetic = bool(record.config.get("synthetic"))
    return document(
        "run.html",
        scripts=("dom", "fold", "chart", "copy"),
        title=f"{record.config.get('recipe', 'run')} of {settings.get('model_name', 'an unknown model')}"
        + " (synthetic)" * is_synthetic,
        name="",
        position="",
        recipe=record.config.get("recipe"),
        model=settings.get("model_name"),
        parent=None,
        status=record.facts.get("state", "").partition(":")[0],
        state_text=record.facts.get("state", ""),
        progress_text="",
        done=None,
        headline="" if record.headline is None else record.headline.text,
        stderr=None,
        took=record.place,
        is_synthetic=is_synthetic,
        problem=None,
        gaps=record.gaps,
        findings=[finding.as_json() for finding in record.findings],
        warnings=record.warnings,
        notes=record.notes,
        resume=record.resume,
        links=[],
        steps=None,
        parts=[_part(part) for part in record.parts],
        deciding=charts.deciding(whole=True),
        groups=charts.others(whole=True),
        num_broken_rows=0,
        overoptimization=overoptimization_chart(record.metrics, (first_step, last_step)),
        held_out=held_out_table(curves),
        evaluations=[evaluation_text(when, answers) for when, answers in answered.items()],
        questions=questions[:_MAX_ANSWERS],
        num_more_questions=max(0, len(questions) - _MAX_ANSWERS),
        page_groups=[
            (title, folder, len(names), [_link(folder, name) for name in names[-_MAX_LINKS:]])
            for title, folder, names in (
                ("Rollouts", "rollouts", record.rollouts),
                ("Notes of evaluators", "evaluations", record.evaluations),
            )
            if names
        ],
        checkpoints=[_checkpoint(point, record) for point in record.checkpoints],
        num_checkpoints=len(record.checkpoints),
        checkpoints_problem=None,
        commands=[],
        settings=[
            (name, value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
            for name, value in settings.items()
        ],
        has_origins=None,
        defaults=[],
        facts=list(_facts(record, last_step if curves else "-").items()),
    )


def _facts(record: RunRecord, last_step: object) -> Mapping[str, object]:
    return {
        **record.facts,
        **{name: record.config[name] for name in ("seed", "version", "revision") if name in record.config},
        **_synthetic(record.config.get("synthetic")),
        "folder": record.folder,
        "last step with metrics": last_step,
        **(
            {}
            if record.best is None
            else {"best checkpoint": f"{record.best.name}: {checkpoint_text(record.best, record.declared)}"}
        ),
    }


def _synthetic(ports: object) -> Mapping[str, str]:
    if not isinstance(ports, list) or not ports:
        return {}
    return {"synthetic": f"no-op adapters made it up: {', '.join(map(str, ports))}"}


def _part(part: RunPart) -> dict[str, str | None]:
    address = None if part.page is None else quote(os.fsencode(part.page))
    headline = "-" if part.headline is None else part.headline.text
    return {
        "name": part.name,
        "address": address,
        "recipe": part.recipe,
        "status": str(part.state),
        "headline": headline,
    }


def _checkpoint(point: Checkpoint, record: RunRecord) -> dict[str, Any]:
    is_best = point is record.best
    return {
        "name": point.name,
        "step": point.step,
        "kinds": ["best"] * is_best + ["final"] * point.final,
        "best_text": checkpoint_text(point, record.declared) if is_best else None,
        "registered_as": None,
        "state_path": point.state_path,
        "sampler_path": point.sampler_path,
        "export": None,
    }


def _page_text(stem: str) -> str:
    """Title of a page of rollouts or notes: `000002` is of the third step, `test-000002` and `000002-0` of the
    weights after two.
    """
    named = re.fullmatch(r"(?P<test>test-)?(?P<step>\d{6,})(-(?P<mark>.+))?", stem)
    if named is None:
        return stem
    step = int(named["step"])
    if named["mark"]:
        return f"{after_step(step)} ({named['mark']})"
    return f"held out, {after_step(step)}" if named["test"] else f"step {step_number(step):,}"


def _link(folder: str, name: str) -> tuple[str, str]:
    """Text and address."""
    return _page_text(PurePath(name).stem), f"{folder}/{quote(os.fsencode(name))}"
