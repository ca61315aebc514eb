"""The preference model workflow: comparisons in, an adapter that says which of two answers is better out; and its
summary.
"""

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from cookhouse.algorithms.base.batch_size import batches_of, fit_batch
from cookhouse.algorithms.base.evaluation import init_evaluators, keep_noted, record_metrics, scheduled_evaluators
from cookhouse.algorithms.base.facts import adapter_size, context_fact, model_fact, settings_notes
from cookhouse.algorithms.base.loop import BATCHED, batch_source, log_slot, objective_slot
from cookhouse.algorithms.base.rows import (
    SplitRows,
    check_preferences,
    cut_notes,
    kept_tokens,
    recorded_sources,
    sources_of,
    split_rows,
)
from cookhouse.algorithms.base.run import open_run, set_steps
from cookhouse.algorithms.base.tokenizer import init_tokenizer
from cookhouse.algorithms.base.workflow import training_workflow
from cookhouse.algorithms.stages.stage import SlotStage, stage
from cookhouse.algorithms.stages.workflow import Workflow
from cookhouse.chat import LABELS, ComparisonRenderer
from cookhouse.data import (
    BadRows,
    ComparisonRow,
    DataSource,
    Example,
    SupervisedDataset,
    read_comparisons,
    render_comparisons,
    usable_comparisons,
)
from cookhouse.data.rows.marks import mark_remarks
from cookhouse.data.rows.remarks import null_remarks
from cookhouse.envs import evenly_spaced
from cookhouse.errors import InputError
from cookhouse.evals import comparison_metrics, judge_comparisons, note_comparisons, preview_example
from cookhouse.grading import GenerativePreferenceModel
from cookhouse.models.catalog import context_tokens
from cookhouse.models.tokenizers import get_tokenizer
from cookhouse.runs import Figure
from cookhouse.settings import PreferenceModelSettings
from cookhouse.telemetry import Entry, Recording, Telemetry, Values, events, keys
from cookhouse.training import (
    CROSS_ENTROPY,
    Cadence,
    SamplingClient,
    ScheduledEvaluation,
    TrainingClient,
    as_datums,
)
from cookhouse.workflows.preference_model.state import PreferenceModelState


@dataclass(frozen=True, kw_only=True)
class ComparisonEvaluation:
    """Evaluation of the answers that a snapshot prefers, in both orders; what later steps do is not seen."""

    rows: Sequence[ComparisonRow]
    renderer: ComparisonRenderer
    telemetry: Telemetry
    keep: Callable[[int, Sequence[Entry]], None]

    async def begin(self, client: TrainingClient, step: int) -> Coroutine[Any, Any, Values]:
        return self._finish(step, client.save_weights_and_get_sampling_client())

    async def _finish(self, step: int, snapshot: Awaitable[SamplingClient]) -> Values:
        judged = await judge_comparisons(GenerativePreferenceModel(self.renderer, await snapshot), self.rows)
        recording = Recording()
        with recording.active():
            note_comparisons(judged)
        self.keep(step, recording.drain())
        return record_metrics(self.telemetry, step, comparison_metrics(judged))


@stage(doing="reading the data", reads=("config",), writes=("data", "notes"), uses=("datasets",))
async def load_dataset(state: PreferenceModelState) -> None:
    """Read the comparisons to train on and, evenly spaced through the held-out ones, those to evaluate on."""
    sources = recorded_sources(state.config, "preferences", state.context.folder.data)
    state.data = await asyncio.to_thread(_read, state.config, sources)
    state.notes += state.data.notes


def _read(config: PreferenceModelSettings, sources: Mapping[str, DataSource]) -> SplitRows[ComparisonRow]:
    bad = BadRows(config.on_bad_row)
    rows: dict[str, list[ComparisonRow]] = {}
    num_ties = 0
    nulls: list[str] = []
    for name, source in sources.items():
        check_preferences(source)
        read = read_comparisons(source, bad=bad)
        nulls += null_remarks(read, what="comparisons")
        rows[name], left_out = usable_comparisons(read, config.ties, bad)
        num_ties += left_out
    split = split_rows(config, rows, seed=config.seed)
    ties = [f"{num_ties:,} ties are left out"] if num_ties else []
    test = evenly_spaced(split.test, config.num_eval)
    return replace(split, test=test, notes=[*bad.notes, *nulls, *ties, *split.notes])


@stage(
    doing="tokenizing the data",
    reads=("config", "data", "renderer"),
    writes=(
        "data",
        "comparisons",
        "dataset",
        "objective",
        "context_tokens",
        "notes",
        "total_steps",
        "steps_per_epoch",
        "adam",
    ),
)
async def build_comparison_dataset(state: PreferenceModelState) -> None:
    """Tokenize, and know from it how many steps there will be."""
    config = state.config
    state.objective = CROSS_ENTROPY
    state.comparisons = ComparisonRenderer(state.renderer)
    state.notes += await asyncio.to_thread(settings_notes, config)
    state.context_tokens = await asyncio.to_thread(context_tokens, config.model_name)
    examples = await _render(state, state.data.train, in_both_orders=config.swap)
    state.notes += _cut(state, examples, "examples")
    state.notes += mark_remarks(state.data.train, state.renderer.encoder, what="comparisons")
    state.dataset = SupervisedDataset(examples, batch_size=config.batch_size, seed=config.seed)
    num_examples = len(state.dataset.examples)
    state.dataset.batch_size = fit_batch(state, batches_of(num_examples), f"{num_examples:,} examples")
    state.notes += state.dataset.notes
    held_out = await _render(state, state.data.test, in_both_orders=True)
    whole = {example.source for example in held_out if not example.num_cut_tokens}
    if lost := [row for row in state.data.test if row.source not in whole]:
        state.notes.append(
            f"{len(lost):,} of {len(state.data.test):,} held-out comparisons are longer than "
            f"{kept_tokens(config, state.context_tokens):,} tokens and are left out; the first is {lost[0].source}"
        )
        state.data = replace(state.data, test=[row for row in state.data.test if row.source in whole])
    set_steps(state, len(state.dataset))
    for pieces in preview(state):
        state.telemetry.event(events.DATA_PREVIEW, pieces=json.dumps(pieces))


async def _render(state: PreferenceModelState, rows: Sequence[ComparisonRow], *, in_both_orders: bool) -> list[Example]:
    config = state.config
    bad = BadRows(config.on_bad_row)
    length = kept_tokens(config, state.context_tokens)
    render = partial(render_comparisons, max_length=length, in_both_orders=in_both_orders, seed=config.seed, bad=bad)
    examples = await asyncio.to_thread(render, rows, state.comparisons)
    state.notes += bad.notes
    return examples


def _cut(state: PreferenceModelState, examples: Sequence[Example], what: str) -> list[str]:
    num_cut = sum(example.num_cut_tokens > 0 for example in examples)
    return cut_notes(num_cut, len(examples), what, state.config, state.context_tokens)


def preview(state: PreferenceModelState) -> list[list[tuple[str, bool]]]:
    """The first example as pieces of text, each with whether it is trained on."""
    return [preview_example(state.dataset.examples[0], get_tokenizer(state.config.model_name))]


@stage(
    doing="loading the model",
    reads=("config", "data", "dataset", "notes", "comparisons", "total_steps", "evaluators"),
    writes=("folder", "checkpoints", "cursor", "session", "evaluations"),
    needs=("service",),
)
async def init_session(state: PreferenceModelState) -> None:
    """Open the run directory and then the session: fresh, from weights, or where a checkpoint left off."""
    await open_run(state)
    limit, longest = state.session.context_tokens, state.dataset.statistics.longest_tokens
    if limit is not None and longest > limit:
        raise InputError(
            f"{state.config.model_name} takes {limit:,} tokens at this service, and the longest example has "
            f"{longest:,}; set max_length={limit}"
        )
    state.evaluations += _held_out(state) + scheduled_evaluators(
        state.evaluators, state.telemetry, state.folder.evaluations
    )


def _held_out(state: PreferenceModelState) -> list[ScheduledEvaluation]:
    if not state.data.test:
        return []
    evaluation = ComparisonEvaluation(
        rows=state.data.test,
        renderer=state.comparisons,
        telemetry=state.telemetry,
        keep=partial(keep_noted, state.folder.evaluations, "comparisons", "Held-out comparisons"),
    )
    cadence = Cadence(every=state.config.eval_every, at_start=state.config.eval_at_start)
    return [ScheduledEvaluation(name="held out", evaluation=evaluation, cadence=cadence)]


def preference_model_workflow(config: PreferenceModelSettings) -> Workflow[PreferenceModelState]:
    """The stages of a run that trains a preference model."""
    return training_workflow(
        name="preference_model",
        state_class=PreferenceModelState,
        start=lambda context: PreferenceModelState(context=context, config=config),
        setup=(load_dataset, init_tokenizer, build_comparison_dataset, init_evaluators, init_session),
        get_work=SlotStage(
            name="get_comparison_batch", make=lambda state: batch_source(state, as_datums), reads=BATCHED
        ),
        forward_backward=objective_slot("forward_backward"),
        log=log_slot("log_step_metrics"),
        result=partial(training_result, _figures),
        facts=_facts,
        previews=preview,
        data_files=sources_of(config, "preferences"),
    )


_Row = Mapping[str, float]
_HELD_OUT = (
    (keys.TEST_PAIR_ACCURACY, "held-out comparisons judged rightly", True),
    ("test/accuracy_low", "of which the 95% interval begins at", True),
    ("test/accuracy_high", "and ends at", True),
    (keys.TEST_NLL, "held-out loss (nats per label)", False),
    ("test/order_disagreement", "held-out comparisons whose orders disagree", True),
)


def _figures(first: _Row, last: _Row, after: _Row) -> tuple[Figure, ...]:
    """Held-out accuracy with its interval, loss and order disagreement, and the training loss."""
    held_out = (
        Figure(name=name, label=label, before=first.get(name), after=after.get(name), is_share=is_share)
        for name, label, is_share in _HELD_OUT
    )
    trained = Figure(
        name=keys.TRAIN_LOSS,
        label="training loss, first and last step",
        before=first.get(keys.TRAIN_LOSS),
        after=last.get(keys.TRAIN_LOSS),
    )
    return (*held_out, trained)


def _facts(state: PreferenceModelState) -> dict[str, str]:
    """Facts of a dry run: comparisons, tokens, labels, steps, and the adapter."""
    config, found = state.config, state.dataset.statistics
    labels = Counter(row.label for row in state.data.train)
    counts = ", ".join(f"{labels[label]:,} {label}" for label in LABELS if labels[label])
    return {
        "model": model_fact(config.model_name),
        "tokenizer": config.model_name,
        "renderer": config.renderer_name,
        "comparisons": f"{len(state.data.train):,} to train on ({counts}), {len(state.data.test):,} held out",
        "orders": "both of each comparison" if config.swap else "one of each comparison, drawn by the seed",
        "tokens": f"{found.num_tokens:,}, of which {found.num_trained_tokens:,} are labels",
        "context": context_fact(state.context_tokens),
        "longest example": f"{found.longest_tokens:,} tokens",
        "steps": f"{state.total_steps:,} in all, {state.steps_per_epoch:,} per epoch",
        "adapter": adapter_size(config),
    }
