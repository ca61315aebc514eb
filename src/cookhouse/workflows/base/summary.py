"""Summary of a training run, read from its state and its folder."""

import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

import chz

from cookhouse.errors import InputError
from cookhouse.models.catalog import FAMILIES, TEMPLATE, dims, family_of, why_template
from cookhouse.models.hyperparams import auto_lr, lora_parameter_count, rate_notes
from cookhouse.report import RecordedAnswer, checkpoint_text, overfitting_remark, overoptimization_remark
from cookhouse.runs import AnswerSample, Figure, RunResult, RunSummary, read_history
from cookhouse.runs.names import CONFIG_FILE, LOG_FILE, REPORT_FILE
from cookhouse.settings import TrainingSettings
from cookhouse.settings.defaults import default_of, given
from cookhouse.settings.optimizer import AUTO
from cookhouse.settings.rates import RateDefault
from cookhouse.telemetry import Metric, keys, read_metrics
from cookhouse.weights.checkpoints import CHECKPOINTS_FILE, Checkpoint, named_by_run
from cookhouse.workflows.base.run import TrainingState
from cookhouse.workflows.base.spending import cost_text

_BYTES_PER_PARAMETER = 16
"""Weight, gradient and two Adam moments, four bytes each."""

T = TypeVar("T", bound=TrainingState)
Row = Mapping[str, Any]
Figures = Callable[[Row, Row, Row], Sequence[Figure]]
"""Of the metrics of the first step, of the last step, and of the trained weights; each may be empty."""


def training_result(figures: Figures, state: T, seconds: float) -> RunResult[T]:
    """The result of a run that ended or was interrupted; figures from before a resume come from the run directory."""
    rows = read_metrics(state.folder.metrics)
    first = rows[0] if rows and rows[0]["step"] == 0 else {}
    last: Row = next((row for row in reversed(rows) if keys.LEARNING_RATE in row), {})
    saved = named_by_run(state.checkpoints.read())
    history = read_history(state.folder.path)
    is_interrupted = state.status == "interrupted"
    report = state.folder.path / REPORT_FILE
    summary = RunSummary(
        recipe=state.context.recipe,
        model_name=state.config.model_name,
        folder=state.folder.path,
        is_interrupted=is_interrupted,
        is_paused=state.outcome.is_paused,
        num_steps=state.outcome.cursor.step,
        total_steps=state.total_steps,
        seconds=seconds,
        figures=figures(first, last, state.eval_results),
        samples=_samples(state, state.config.num_samples),
        remark=_remark(rows, saved, history.declared),
        report=report if report.exists() else None,
        state_path=next((point.state_path for point in saved if point.state_path), None),
        sampler_path=next((point.sampler_path for point in saved if point.sampler_path), None),
        best=next((f"{point.name}: {checkpoint_text(point)}" for point in saved if point.best), None),
        stopped=_stopped(state),
        next_command=_next_command(state, is_interrupted),
        usage=history.usage,
        cost=None if history.usage is None else cost_text(history.usage, state.config.prices),
        registered_model=None if state.registered_model is None else state.registered_model.id,
    )
    metrics = {**state.outcome.metrics, **state.eval_results}
    state.eval_results = with_plain_names(state.eval_results)
    return RunResult(state=state, metrics=metrics, artifacts=_artifacts(state, summary), summary=summary)


def _remark(rows: Sequence[Row], saved: Sequence[Checkpoint], own: Mapping[str, Metric]) -> str | None:
    remarks = [overoptimization_remark(rows), overfitting_remark(rows, saved, own)]
    return "\n".join(filter(None, remarks)) or None


def _stopped(state: TrainingState) -> str | None:
    if state.outcome.is_paused:
        return f"paused: pause_at_step={state.config.pause_at_step}"
    if state.status == "interrupted":
        return state.interrupt.reason
    is_short = state.outcome.cursor.step < state.total_steps
    return state.best.reason if state.best is not None and is_short else None


_PLAIN_NAMES = {
    "accuracy": (keys.TEST_ACCURACY, keys.TEST_CORRECT, keys.TEST_EXACT_MATCH),
    "precision": (keys.TEST_PRECISION,),
    "recall": (keys.TEST_RECALL,),
    "f1": (keys.TEST_F1,),
}
"""What programs ask a result for, with the metrics that it may be: the first that was measured."""


def with_plain_names(results: Mapping[str, Any]) -> dict[str, Any]:
    """Metrics, and `accuracy`, `precision`, `recall` and `f1` with them where one of them is that."""
    plain = {
        name: next((results[metric] for metric in metrics if metric in results), None)
        for name, metrics in _PLAIN_NAMES.items()
    }
    return {**results, **{name: value for name, value in plain.items() if value is not None}}


def _next_command(state: TrainingState, is_interrupted: bool) -> str:
    folder = shlex.quote(str(state.folder.path))
    if is_interrupted:
        limit = state.config.max_tokens_total
        is_spent = limit is not None and (state.interrupt.reason or "").startswith("max_tokens_total")
        more = f" max_tokens_total={2 * limit}" if limit is not None and is_spent else ""  # with as many it is refused
        return f"cookhouse {state.context.command} log_path={folder} behavior_if_log_dir_exists=resume{more}"
    return f"cookhouse sample {folder}"


def _artifacts(state: TrainingState, summary: RunSummary) -> dict[str, str]:
    path = state.folder.path
    paths = {
        "folder": path,
        "config": path / CONFIG_FILE,
        "metrics": state.folder.metrics,
        "checkpoints": path / CHECKPOINTS_FILE,
        "log": path / LOG_FILE,
        "trace": state.folder.trace,
        "report": summary.report,
        "state_path": summary.state_path,
        "sampler_path": summary.sampler_path,
        "registered_model": summary.registered_model,
    }
    return {name: str(place) for name, place in paths.items() if place is not None}


def _samples(state: TrainingState, num_samples: int) -> list[AnswerSample]:
    """Answers before and after training, evenly spaced through the held-out problems sorted by their group.

    Each group has its share, whatever the answers are.
    """
    before = state.folder.read_answers(0)
    after = state.folder.read_answers(state.outcome.cursor.step) if state.eval_results else []
    asked = after or before
    count = min(num_samples, len(asked))
    by_group = sorted(range(len(asked)), key=lambda index: asked[index].group or "")
    chosen = [by_group[index * len(asked) // count] for index in range(count)]
    return [
        AnswerSample(
            prompt=asked[index].prompt,
            earlier=asked[index].earlier,
            expected=asked[index].expected,
            before=_answer(before, index),
            after=_answer(after, index),
        )
        for index in chosen
    ]


def _answer(answers: Sequence[RecordedAnswer], index: int) -> str | None:
    return answers[index].answer if index < len(answers) else None


class RatedConfig(Protocol):
    """Settings that `settings_notes` reads."""

    @property
    def model_name(self) -> str: ...
    @property
    def renderer_name(self) -> str: ...
    @property
    def learning_rate(self) -> float: ...
    @property
    def lora_rank(self) -> int: ...


def settings_notes(config: RatedConfig, *, by_reward: bool = False) -> list[str]:
    """Notes for a person on settings that are not refused."""
    return [
        *_renderer_notes(config),
        *_rate_source_notes(config),
        *rate_notes(config.model_name, config.learning_rate, is_lora=config.lora_rank > 0, by_reward=by_reward),
    ]


def _rate_source_notes(config: RatedConfig) -> list[str]:
    """Note on the source of the learning rate, if it is to be found out."""
    default = chz.chz_fields(config)["learning_rate"]._munger
    if isinstance(default, RateDefault):
        note = default.note(config)
        return [] if note is None else [note]
    if given(config, "learning_rate") != AUTO:
        return []
    return [auto_lr(config.model_name, default_of(config, "learning_rate"), is_lora=config.lora_rank > 0)[1]]


def _renderer_notes(config: RatedConfig) -> list[str]:
    if config.renderer_name != TEMPLATE:
        return []
    family = _family(config.model_name)
    if why := _why_template(config.model_name):
        reason = f": {why}"
    elif family is None or not FAMILIES[family].renderers:
        reason = f"; the table knows no renderer for {family or config.model_name}"
    else:
        reason = ""
    return [f"renderer: {TEMPLATE} (the model's own chat template{reason})"]


def model_fact(model: str) -> str:
    """Kind of the model, and its sizes as far as they are known."""
    sizes = dims(model)
    parts = [f"family {_family(model) or 'unknown'}"]
    if sizes is not None:
        depth = "" if sizes.num_layers is None else f"{sizes.num_layers:,} layers, "
        parts.append(f"{depth}width {sizes.hidden_size:,}")
        if sizes.num_experts is not None:
            parts.append(f"{sizes.num_experts:,} experts")
        if sizes.vocab_size is not None:
            parts.append(f"vocabulary of {sizes.vocab_size:,} tokens")
    return ", ".join(parts)


def _family(model: str) -> str | None:
    try:
        return family_of(model)
    except InputError:  # a renderer was forced on a model whose files are on another machine
        return None


def _why_template(model: str) -> str:
    try:
        return why_template(model)
    except InputError:  # as above
        return ""


def context_fact(context_tokens: int | None) -> str:
    """Length of the sequences that the model takes."""
    if context_tokens is None:
        return "unknown here; the service will say, before anything is trained"
    return f"{context_tokens:,} tokens, prompt and answer together"


def adapter_size(config: TrainingSettings) -> str:
    """Parameters of an adapter, and the memory that it takes at the service."""
    if config.lora_rank == 0:
        return "none: all weights of the model are trained"
    try:
        parameters = lora_parameter_count(
            config.model_name,
            config.lora_rank,
            train_attn=config.train_attn,
            train_mlp=config.train_mlp,
            train_unembed=config.train_unembed,
        )
    except InputError as error:  # the weights are with the service, on another machine
        return f"size unknown: {error}"
    num_bytes = parameters * _BYTES_PER_PARAMETER
    return f"{parameters:,} parameters, {num_bytes / 1e6:,.1f} MB with gradient and optimizer state"
