"""A step: what happened there, what was trained on, and what was sampled."""

from collections.abc import Mapping, Sequence
from typing import Any

from starlette.requests import Request

from cookhouse.errors import InputError, UnknownNameError
from cookhouse.pages import run_address
from cookhouse.report.step_changes import step_changes
from cookhouse.runs.listing.find import FoundRun
from cookhouse.runs.names import METRICS_FILE
from cookhouse.runs.reading.examples import example_steps, read_examples
from cookhouse.runs.reading.rollout_filter import RolloutFilter, find_rollouts
from cookhouse.runs.reading.rollouts import RolloutIndex, rollouts_file
from cookhouse.runs.reading.step_rows import StepRows, has_step, read_step_rows
from cookhouse.runs.reading.used_groups import used_groups
from cookhouse.telemetry import Metric, find_metric, is_held_out, step_number
from cookhouse.view.pages import page_and_json
from cookhouse.view.tokens.examples import examples_values
from cookhouse.view.tokens.query import one_of
from cookhouse.view.tokens.shown import quantity_names
from cookhouse.view.tokens.step_name import StepName, parse_step
from cookhouse.view.tokens.table import bars_of, group_lines
from cookhouse.view.tokens.words import Words

_MAX_GROUPS = 40
_MAX_METRICS = 400


def _read(request: Request) -> dict[str, Any]:
    run = request.app.state.place.run(request.path_params["name"])
    name = parse_step(request.path_params["step"])
    if name.is_test:
        raise InputError(
            f"{name} is no step of training; what was held out is at {run_address(run.name)}rollouts/{name}"
        )
    gaps: list[str] = []
    lines = request.app.state.rollouts.lines(run.path / METRICS_FILE)
    found = read_step_rows(run.path / METRICS_FILE, lines, name.step)
    following = has_step(run.path / METRICS_FILE, lines, name.step + 1)
    index = request.app.state.rollouts.index(rollouts_file(run.path, name.step, is_test=False))
    if found.num_broken:
        gaps.append(f"{found.num_broken:,} lines of metrics.jsonl are no metrics of a step, and are left out")
    metrics = {key: value for row in found.rows if row["step"] == name.step for key, value in row.items()}
    if not metrics and not len(index.lines) and name.step not in example_steps(run.path):
        raise _absent(run, name, found)
    if not metrics:
        gaps.append("the step has no metrics yet: it is under way, or the run ended in it")
    words = request.app.state.wordings.of(run.record)
    examples = _examples(request, run, name.step, words, gaps)
    if words.problem and (examples["examples"] or len(index.lines)):
        gaps.append(words.problem)
    return {
        "name": run.name,
        "step": str(name),
        "title": f"Step {name}",
        "previous": str(name.step) if name.step else None,
        "following": str(name.step + 2) if following else None,
        "recipe": run.record.get("recipe"),
        **_metrics(found.rows, metrics, name.step, run.history.declared),
        **examples,
        "sampled": _sampled(request, run, name, index, words) if len(index.lines) else None,
        "others": _others(run, name.step, gaps),
        "held_out": [
            {"title": each.title, "address": run_address(run.name, f"rollouts/{each}")}
            for each in (StepName(name.step, is_test=True), StepName(name.step + 1, is_test=True))
            if each.file(run.path).is_file()
        ],
        "gaps": gaps,
    }


def _metrics(
    rows: Sequence[Mapping[str, Any]], now: Mapping[str, Any], step: int, own: Mapping[str, Metric]
) -> dict[str, Any]:
    """Metrics that moved, the most telling ones, and all; each against the step before."""
    before = {key: value for row in rows if row["step"] == step - 1 for key, value in row.items()}
    changes = step_changes(rows, step, own)
    named = [find_metric(key, own) for key, value in now.items() if key != "step" and _is_number(value)]
    telling = sorted(
        (metric for metric in named if metric.chart is not None and not is_held_out(metric.name)),
        key=lambda metric: metric.chart or 0,
    )
    return {
        "is_usual_known": any(change.usual is not None for change in changes),
        "changes": [
            {"name": change.metric.name, "told": change.told, "is_better": change.is_better} for change in changes
        ],
        "telling": [_figure(metric, now, before) for metric in telling],
        "metrics": [_figure(metric, now, before) for metric in named[:_MAX_METRICS]],
    }


def _figure(metric: Metric, now: Mapping[str, Any], before: Mapping[str, Any]) -> dict[str, Any]:
    value, earlier = now[metric.name], before.get(metric.name)
    return {
        "name": metric.name,
        "label": metric.label or metric.name,
        "value": value,
        "text": metric.text(value),
        "difference": metric.difference_text(earlier, value) if _is_number(earlier) and earlier is not None else None,
    }


def _examples(request: Request, run: FoundRun, step: int, words: Words, gaps: list[str]) -> dict[str, Any]:
    """Of a step without any, it is said why."""
    try:
        examples = read_examples(run.path, step)
    except InputError as error:
        gaps.append(str(error))
        examples = []
    if not examples and not gaps:
        gaps.append(
            "no examples of this step are kept: with num_shown_examples=0 a run keeps none, a long run keeps those of "
            "every second step, every fourth and so on, and older versions kept none"
        )
    return examples_values(examples, words, one_of(request, "by", ("", *quantity_names())))


def _sampled(request: Request, run: FoundRun, name: StepName, index: RolloutIndex, words: Words) -> dict[str, Any]:
    address = run_address(run.name, f"rollouts/{name}")
    rewards = [reward for group in index.groups for reward in group.rewards]
    found = find_rollouts(index, RolloutFilter(), None)
    return {
        "address": address,
        "num_groups": len(index.groups),
        "num_rollouts": len(rewards),
        "mean_reward": sum(rewards) / len(rewards) if rewards else None,
        "bars": [
            {**bar, "address": f"{address}?min_reward={bar['least']!r}&max_reward={bar['most']!r}"}
            for bar in bars_of(index, found, RolloutFilter())
        ],
        "groups": [
            {**line, "address": f"{address}?group={line['number']}"}
            for line in group_lines(request.app.state.rollouts, index, index.groups[:_MAX_GROUPS], words)
        ],
        "num_more_groups": max(0, len(index.groups) - _MAX_GROUPS),
    }


def _others(run: FoundRun, step: int, gaps: list[str]) -> list[dict[str, Any]]:
    """Groups that were planned for other steps and trained on in this one, by the step that they were planned for."""
    try:
        used = used_groups(run.path, step) or []
    except InputError as error:
        gaps.append(str(error))
        return []
    planned: dict[int, list[int]] = {}
    for planned_for, number in used:
        if planned_for != step:
            planned.setdefault(planned_for, []).append(number)
    return [
        {
            "step": step_number(planned_for),
            "num_groups": len(numbers),
            "address": run_address(run.name, f"rollouts/{step_number(planned_for)}"),
        }
        for planned_for, numbers in planned.items()
    ]


def _absent(run: FoundRun, name: StepName, found: StepRows) -> UnknownNameError:
    come_to = (
        "no step of it has finished"
        if found.last_step is None
        else f"it has come to step {step_number(found.last_step)}"
    )
    return UnknownNameError("step", str(name), [], way_out=f"of {run.name}, {come_to}")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


ROUTES = page_and_json("/runs/{name:path}/-/steps/{step}", _read, "step.html")
