"""The preference model workflow: comparisons in, an adapter that says which of two answers is better out."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

import tinker

from cookhouse.chat import ComparisonRenderer
from cookhouse.data import (
    BadRows,
    ComparisonRow,
    DataSource,
    Example,
    SupervisedDataset,
    build_renderer,
    read_comparisons,
    render_comparisons,
    usable_comparisons,
)
from cookhouse.envs import evenly_spaced
from cookhouse.errors import InputError
from cookhouse.evals import preview_example
from cookhouse.models.catalog import context_tokens
from cookhouse.models.tokenizers import get_tokenizer
from cookhouse.registry import Descent
from cookhouse.settings import PreferenceModelSettings
from cookhouse.telemetry import events
from cookhouse.training import (
    CROSS_ENTROPY,
    BatchSource,
    Cadence,
    ScheduledEvaluation,
    StepLog,
    as_datums,
)
from cookhouse.workflows.base.evaluation import init_evaluators, keep_noted, scheduled_evaluators
from cookhouse.workflows.base.rows import (
    SplitRows,
    check_preferences,
    cut_notes,
    kept_tokens,
    sources_of,
    split_rows,
)
from cookhouse.workflows.base.run import (
    checkpoint_slot,
    cleanup,
    evaluate,
    evaluate_slot,
    open_run,
    optim_step_slot,
    register_model,
    save_every,
    save_final,
    set_steps,
)
from cookhouse.workflows.base.summary import settings_notes, training_result
from cookhouse.workflows.preference_model.evaluation import ComparisonEvaluation
from cookhouse.workflows.preference_model.state import PreferenceModelState
from cookhouse.workflows.preference_model.summary import facts, figures
from cookhouse.workflows.stages.body import Loop
from cookhouse.workflows.stages.stage import SlotStage, stage
from cookhouse.workflows.stages.workflow import Workflow


@stage(reads=("config",), writes=("data", "notes"), uses=("datasets",))
async def load_dataset(state: PreferenceModelState) -> None:
    """Read the comparisons to train on and, evenly spaced through the held-out ones, those to evaluate on."""
    # The run folder's own sources where it has them: what is trained on is what the fingerprint is of.
    sources = {**sources_of(state.config, "preferences"), **state.context.folder.data}
    state.data = await asyncio.to_thread(_read, state.config, sources)
    state.notes += state.data.notes


def _read(config: PreferenceModelSettings, sources: Mapping[str, DataSource]) -> SplitRows[ComparisonRow]:
    bad = BadRows(config.on_bad_row)
    rows: dict[str, list[ComparisonRow]] = {}
    num_ties = 0
    for name, source in sources.items():
        check_preferences(source)
        rows[name], left_out = usable_comparisons(read_comparisons(source, bad=bad), config.ties, bad)
        num_ties += left_out
    split = split_rows(config, rows, seed=config.seed)
    ties = [f"{num_ties:,} ties are left out"] if num_ties else []
    test = evenly_spaced(split.test, config.num_eval)
    return replace(split, test=test, notes=[*bad.notes, *ties, *split.notes])


@stage(reads=("config",), writes=("renderer", "comparisons"))
async def init_tokenizer(state: PreferenceModelState) -> None:
    """Load the tokenizer, the renderer over it, and what writes comparisons in its format."""
    config = state.config
    make = partial(build_renderer, config.model_name, config.renderer_name, force=config.force_renderer)
    state.renderer = await asyncio.to_thread(make)
    state.comparisons = ComparisonRenderer(state.renderer)


@stage(
    reads=("config", "data", "comparisons"),
    writes=("dataset", "context_tokens", "notes", "total_steps", "steps_per_epoch", "adam"),
)
async def build_comparison_dataset(state: PreferenceModelState) -> None:
    """Tokenize, and know from it how many steps there will be."""
    config = state.config
    state.notes += await asyncio.to_thread(settings_notes, config)
    state.context_tokens = await asyncio.to_thread(context_tokens, config.model_name)
    examples = await _render(state, state.data.train, in_both_orders=config.swap)
    state.notes += _cut(state, examples, "examples")
    state.dataset = SupervisedDataset(examples, batch_size=config.batch_size, seed=config.seed)
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
    reads=("config", "data", "dataset", "notes", "renderer", "comparisons", "total_steps", "evaluators"),
    writes=("folder", "checkpoints", "cursor", "session", "evaluations"),
    needs=("service",),
)
async def init_session(state: PreferenceModelState) -> None:
    """Open the run folder and then the session: fresh, from weights, or where a checkpoint of the folder left off."""
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
    cadence = Cadence(every=state.config.eval_every, at_start=True)
    return [ScheduledEvaluation(name="held out", evaluation=evaluation, cadence=cadence)]


def _source(state: PreferenceModelState) -> BatchSource[list[tinker.Datum], None]:
    return BatchSource(
        state.dataset,
        as_datums,
        total_steps=state.total_steps,
        steps_per_epoch=state.steps_per_epoch,
        cursor=state.cursor,
    )


def preference_model_workflow(config: PreferenceModelSettings) -> Workflow[PreferenceModelState]:
    """The stages of a run that trains a preference model."""
    return Workflow(
        name="preference_model",
        state_class=PreferenceModelState,
        start=lambda context: PreferenceModelState(context=context, config=config),
        # What can be wrong with the caller's input is found before the folder is made and the session opened.
        setup=(load_dataset, init_tokenizer, build_comparison_dataset, init_evaluators, init_session),
        body=Loop(
            get_work=SlotStage(
                name="get_comparison_batch", make=_source, reads=("dataset", "total_steps", "steps_per_epoch", "cursor")
            ),
            forward_backward=SlotStage(name="forward_backward", make=lambda state: CROSS_ENTROPY),  # noqa: ARG005
            optim_step=optim_step_slot(),
            log=SlotStage(
                name="log_step_metrics",
                make=lambda state: StepLog(state.telemetry, state.total_steps, steps_per_epoch=state.steps_per_epoch),
                reads=("total_steps", "steps_per_epoch"),
            ),
            checkpoint=checkpoint_slot(),
            evaluate=evaluate_slot(),
            save_every=save_every,
        ),
        final=(save_final, evaluate, register_model(Descent.FINE_TUNED_FROM)),
        cleanup=cleanup,
        result=partial(training_result, figures),
        facts=facts,
        notes=lambda state: state.notes,
        previews=preview,
        data_files=sources_of(config, "preferences"),
    )
