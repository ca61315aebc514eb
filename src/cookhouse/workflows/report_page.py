"""report.html: a run on one page that opens anywhere, made from what lies in its folder."""

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

from cookhouse.errors import InputError
from cookhouse.telemetry import keys, read_metrics
from cookhouse.training import Checkpoint, CheckpointFile
from cookhouse.training.files import write_whole
from cookhouse.workflows.curves import Curve, Point, curve_svg, curves_of, number
from cookhouse.workflows.folder import CHECKPOINTS_FILE, CONFIG_FILE, METRICS_FILE, SAMPLES_FOLDER, RecordedAnswer
from cookhouse.workflows.page import collapsed, page, section, table, text

REPORT_FILE = "report.html"

_ROLLOUTS_FOLDER = "rollouts"
_FIRST = (
    keys.TRAIN_LOSS,
    keys.TEST_NLL,
    keys.TEST_EXACT_MATCH,
    "env/all/reward/total",
    "test/env/all/reward/total",
    "optim/kl_sample_train_v1",
    "optim/entropy",
    "optim/grad_norm",
    keys.LEARNING_RATE,
)
"""The most telling metrics, in this order, above all others."""
_GROUPS = ("train", "env", "test", "optim", "rollouts", "time")
_LESS_IS_BETTER = {"nll", "bits_per_byte", "malformed", "loss"}
_MORE_IS_BETTER = {"exact_match", "reward", "correct", "format", "accuracy"}
"""Parts of a metric's name that tell which of its values is the best."""
_COMPANIONS = ("_stderr", "_n")
"""Ends of the names of figures about another metric, which no chart is needed of."""
_MAX_ANSWERS = 40
_MAX_CHARACTERS = 2000
_MAX_LINKS = 200

T = TypeVar("T")
Question = tuple[str, str]
"""Prompt and expected answer."""


@dataclass(frozen=True, kw_only=True)
class _Found:
    """What a run folder holds."""

    folder: Path
    config: Mapping[str, Any]
    curves: Sequence[Curve]
    steps: tuple[int, int]
    """The first and the last that has metrics."""
    checkpoints: Sequence[Checkpoint]
    answers: Mapping[int, Mapping[Question, RecordedAnswer]]
    """Of the first and the last evaluation, by the steps that the weights had taken; empty if it cannot be read."""
    rollouts: Sequence[Path]
    gaps: Sequence[str]
    """What is missing, or cannot be read and why."""


def write_report(folder: Path) -> Path:
    """Write report.html into a run folder, finished or not, and return its path. What is missing or broken is named
    on the page.

    Raises:
        InputError: the folder holds no run, or cannot be written.
    """
    if not folder.is_dir():
        raise InputError(f"{folder} is no folder; name the folder of a run")
    found = _find(folder)
    path = folder / REPORT_FILE
    write_whole(path, _render(found))
    return path


def _find(folder: Path) -> _Found:
    gaps: list[str] = []

    def read(name: str, reader: Callable[[Path], T], empty: T, unmade: str | None = None) -> T:
        path = folder / name
        try:
            if path.exists():
                return reader(path)
            gaps.extend([] if unmade is None else [f"{name} is missing: {unmade}"])
        except (OSError, ValueError, TypeError, KeyError) as error:
            gaps.append(f"{name} cannot be read: {error}")
        return empty

    config: dict[str, Any] = read(CONFIG_FILE, _read_config, {}, "the settings are unknown")
    is_run = config or any((folder / name).exists() for name in (METRICS_FILE, CHECKPOINTS_FILE))
    if not is_run and any(folder.iterdir()):
        raise InputError(f"{folder} holds files but no run (no {CONFIG_FILE} of one); name the folder of a run")
    rows: list[dict[str, Any]] = read(METRICS_FILE, read_metrics, [], "no step has finished")
    checkpoints: list[Checkpoint] = read(
        CHECKPOINTS_FILE, lambda path: CheckpointFile(path).read(), [], "nothing has been saved"
    )
    kept = folder.glob(f"{SAMPLES_FOLDER}/*.json")
    samples = sorted((int(path.stem), path.name) for path in kept if path.stem.isdecimal())
    steps = [row["step"] for row in rows] or [0]
    return _Found(
        folder=folder,
        config=config,
        curves=curves_of(rows),
        steps=(min(steps), max(steps)),
        checkpoints=checkpoints,
        answers={
            step: read(f"{SAMPLES_FOLDER}/{name}", _read_answers, {})
            for step, name in dict([*samples[:1], *samples[-1:]]).items()
        },
        rollouts=sorted(folder.glob(f"{_ROLLOUTS_FOLDER}/*.html")),
        gaps=gaps,
    )


def _read_config(path: Path) -> dict[str, Any]:
    config = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(config, dict) or not isinstance(config.get("config"), dict):
        raise InputError("it is not the config of a run")
    return config


def _read_answers(path: Path) -> dict[Question, RecordedAnswer]:
    answers = [RecordedAnswer(**answer) for answer in json.loads(path.read_text(encoding="utf-8"))]
    return {(answer.prompt, answer.expected): answer for answer in answers}


def _render(found: _Found) -> str:
    settings = found.config.get("config", {})
    title = f"{found.config.get('recipe', 'run')} of {settings.get('model_name', 'an unknown model')}"
    return page(
        title,
        [
            *_overview(found),
            *section("Held-out metrics", _held_out(found.curves)),
            *section("Curves", _charts(found)),
            *section("Held-out answers", _answers(found.answers)),
            *section("Rollouts", _links(found.rollouts)),
            *section("Checkpoints", _checkpoints(found.checkpoints)),
            *section("Settings", _settings(settings)),
        ],
    )


def _overview(found: _Found) -> Iterator[str]:
    facts = {name: found.config[name] for name in ("seed", "version", "revision") if name in found.config}
    is_finished = any(checkpoint.final for checkpoint in found.checkpoints)
    facts["folder"] = found.folder.resolve()
    facts["last step with metrics"] = found.steps[1] if found.curves else "-"
    facts["state"] = "finished" if is_finished else "not finished: no final checkpoint"
    yield table(("run", ""), facts.items())
    if found.gaps:
        yield '<ul class="gaps">' + "".join(f"<li>{text(gap)}</li>" for gap in found.gaps) + "</ul>"


def _held_out(curves: Sequence[Curve]) -> Iterator[str]:
    rows = [
        (curve.name, _at(curve.points[0]), _at(_best(curve)), _at(curve.points[-1]))
        for curve in sorted(curves, key=lambda curve: curve.name not in _FIRST)
        if curve.name.startswith("test/") and curve.points
    ]
    if rows:
        yield table(("metric", "first", "best", "last"), rows)


def _at(point: Point | None) -> str:
    return "-" if point is None else f"{number(point.value)} (step {point.step})"


def _best(curve: Curve) -> Point | None:
    """The best value of a metric whose name tells which way is better."""
    if curve.name.endswith(_COMPANIONS):
        return None
    parts = set(curve.name.split("/"))
    if parts & _LESS_IS_BETTER:
        return curve.lowest
    return curve.highest if parts & _MORE_IS_BETTER else None


def _charts(found: _Found) -> Iterator[str]:
    """The most telling ones, then the others by prefix; what counts the progress is hidden at first."""
    groups: dict[str, list[Curve]] = {name: [] for name in ("", *_GROUPS)}
    for curve in found.curves:
        if curve.name.endswith(_COMPANIONS):
            continue
        group = "" if curve.name in _FIRST else curve.name.split("/")[0]
        groups.setdefault(group, []).append(curve)
    groups[""].sort(key=lambda curve: _FIRST.index(curve.name))
    for name, curves in groups.items():
        charts = ['<div class="charts">', *(_figure(curve, found.steps) for curve in curves), "</div>"]
        if name == "" and curves:
            yield from charts
        elif curves:
            yield from collapsed(f"{name}/ ({len(curves)})", charts, is_open=name != "progress")


def _figure(curve: Curve, steps: tuple[int, int]) -> str:
    gaps = f"{curve.num_not_finite:,} not finite" if curve.num_not_finite else ""
    if not curve.points:
        return f"<figure><figcaption><b>{text(curve.name)}</b>{gaps}</figcaption></figure>"
    last, low, high = curve.points[-1], curve.lowest, curve.highest
    facts = [f"last {_at(last)}", f"min {_at(low)}", f"max {_at(high)}", *filter(None, [gaps])]
    caption = f"<figcaption><b>{text(curve.name)}</b>{' · '.join(facts)}</figcaption>"
    return f"<figure>{curve_svg(curve, *steps)}{caption}</figure>"


def _answers(answers: Mapping[int, Mapping[Question, RecordedAnswer]]) -> Iterator[str]:
    """What the weights before and after training answered, matched by what they were asked."""
    by_step = {step: asked for step, asked in answers.items() if asked}
    if not by_step:
        return
    for step, asked in by_step.items():
        right = sum(answer.is_correct is True for answer in asked.values())
        yield f"<p>{_when(step)}: {right} of {len(asked)} correct</p>"
    questions = list(list(by_step.values())[-1])
    for prompt, expected in questions[:_MAX_ANSWERS]:
        given = [(step, asked.get((prompt, expected))) for step, asked in by_step.items()]
        yield '<article class="answer">'
        yield _labeled("asked", prompt)
        yield _labeled("expected", expected)
        yield from (_answered(step, answer) for step, answer in given if answer is not None)
        yield "</article>"
    if len(questions) > _MAX_ANSWERS:
        yield f'<p class="dim">{len(questions) - _MAX_ANSWERS:,} more in {SAMPLES_FOLDER}/</p>'


def _when(step: int) -> str:
    return "before training" if step == 0 else f"after {step:,} steps"


def _labeled(label: str, value: object, kind: str = "") -> str:
    return f'<span class="dim">{label}</span><div class="{kind}">{text(value, _MAX_CHARACTERS)}</div>'


def _answered(step: int, answer: RecordedAnswer) -> str:
    label = f"{_when(step)} {'✓' if answer.is_correct is True else '✗'}"
    return _labeled(label, answer.answer, "good" if answer.is_correct is True else "bad")


def _links(files: Sequence[Path]) -> Iterator[str]:
    """The newest last; names are sorted by step."""
    if len(files) > _MAX_LINKS:
        yield f'<p class="dim">the last {_MAX_LINKS} of {len(files):,}; all are in {_ROLLOUTS_FOLDER}/</p>'
    if files:
        links = (
            f'<a href="{_ROLLOUTS_FOLDER}/{quote(os.fsencode(file.name))}">{text(file.stem)}</a>'
            for file in files[-_MAX_LINKS:]
        )
        yield f"<p>{' '.join(links)}</p>"


def _checkpoints(checkpoints: Sequence[Checkpoint]) -> Iterator[str]:
    if checkpoints:
        yield table(
            ("name", "step", "to continue from", "to sample from"),
            [(point.name, point.step, point.state_path or "-", point.sampler_path or "-") for point in checkpoints],
        )


def _settings(settings: Mapping[str, Any]) -> Iterator[str]:
    if settings:
        shown = [
            (name, value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
            for name, value in settings.items()
        ]
        yield from collapsed(f"{len(shown)} settings", [table(("setting", "value"), shown)])
