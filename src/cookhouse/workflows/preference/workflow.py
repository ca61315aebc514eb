"""The preference workflow: pairs of answers in, an adapter that prefers as they do out."""

import asyncio
import json
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeAlias

from cookhouse.data import BadRows, PreferenceRow, example_statistics
from cookhouse.data.batches.examples import ExampleStatistics
from cookhouse.envs import SecondModels, open_preference_model
from cookhouse.errors import InputError
from cookhouse.evals import preview_example
from cookhouse.models.catalog import context_tokens
from cookhouse.models.tokenizers import get_tokenizer
from cookhouse.registry import Descent
from cookhouse.settings import PreferenceSettings, is_embedded
from cookhouse.telemetry import events
from cookhouse.training import (
    Assembled,
    BatchSource,
    Cadence,
    ScheduledEvaluation,
    service_errors,
)
from cookhouse.workflows.base.counts import Counts, batch_metrics, estimated
from cookhouse.workflows.base.evaluation import init_evaluators, keep_noted, scheduled_evaluators
from cookhouse.workflows.base.preference_model import check_preference_model
from cookhouse.workflows.base.rows import cut_notes, kept_tokens, sources_of
from cookhouse.workflows.base.run import open_run, set_steps
from cookhouse.workflows.base.second_model import open_sampler
from cookhouse.workflows.base.slots import BATCHED, batch_source, log_slot, objective_slot
from cookhouse.workflows.base.summary import settings_notes
from cookhouse.workflows.base.tokenizer import init_tokenizer
from cookhouse.workflows.base.workflow import training_workflow
from cookhouse.workflows.preference.assembler import PairAssembler, PairPayload
from cookhouse.workflows.preference.dataset import Pair, PairDataset, left_out, pair_renderer, render_pairs
from cookhouse.workflows.preference.evaluation import AnswerJudge, HeldOutAnswers, PairEvaluation, askable
from cookhouse.workflows.preference.losses import PAIR_LOSSES
from cookhouse.workflows.preference.objective import pair_objective
from cookhouse.workflows.preference.reference_weights import open_reference
from cookhouse.workflows.preference.rows import read_data
from cookhouse.workflows.preference.state import PreferenceState
from cookhouse.workflows.preference.stream import StreamedPairBatch, StreamedPairs
from cookhouse.workflows.preference.summary import facts, preference_result
from cookhouse.workflows.stages.stage import SlotStage, stage
from cookhouse.workflows.stages.workflow import Workflow

Batch: TypeAlias = Sequence[Pair] | StreamedPairBatch


@stage(reads=("config",), writes=("loss", "data", "notes"), uses=("datasets",))
async def load_dataset(state: PreferenceState) -> None:
    """Read the pairs to train on and, evenly spaced through the held-out ones, those to evaluate on."""
    config = state.config
    state.loss = PAIR_LOSSES.find(config.loss_fn)
    if config.reference_model is not None and not state.loss.needs_reference:
        raise InputError(f"reference_model is set, and {config.loss_fn} needs no reference; leave it out")
    # The run folder's own sources where it has them: a function is then called once, and what is trained on is what the
    # fingerprint is of.
    sources = {**sources_of(config, "preferences"), **state.context.folder.data}
    state.data = await asyncio.to_thread(read_data, config, sources)
    state.notes += state.data.notes


@stage(
    reads=("config", "data", "renderer"),
    writes=(
        "dataset",
        "counts",
        "held_out",
        "answers",
        "context_tokens",
        "notes",
        "total_steps",
        "steps_per_epoch",
        "adam",
    ),
)
async def build_preference_dataset(state: PreferenceState) -> None:
    """Tokenize, and know from it how many steps there will be."""
    config = state.config
    # As by reward, rates that are right here are well below those for conversations.
    state.notes += await asyncio.to_thread(partial(settings_notes, config, by_reward=True))
    state.context_tokens = await asyncio.to_thread(context_tokens, config.model_name)
    state.dataset, state.counts = await _built(state)
    held_out = await _render(state, state.data.test)
    state.notes += _cut(state, held_out, "held-out pairs")
    lost = [reason for pair in held_out if (reason := pair.lost_answer) is not None]
    state.notes += left_out(lost, len(held_out), "held-out pairs")
    state.held_out = [pair for pair in held_out if pair.lost_answer is None]
    state.answers = None
    if rows := askable(state.data.test, state.renderer):
        state.answers = HeldOutAnswers(
            rows, state.renderer, max_tokens=config.eval_max_tokens, context_tokens=state.context_tokens
        )
        state.notes += [*state.answers.notes, *_comparison_notes(config)]
    set_steps(state, len(state.dataset))
    for pieces in preview(state):
        state.telemetry.event("data.preview", pieces=json.dumps(pieces))


async def _built(state: PreferenceState) -> tuple[PairDataset | StreamedPairs, Counts]:
    """The batches, with figures of the answers in them."""
    config, rows = state.config, state.data.streamed
    if rows is None:
        pairs = await _render(state, state.data.train)
        state.notes += _cut(state, pairs, "pairs")
        whole = PairDataset(pairs, batch_size=config.batch_size, seed=config.seed)
        state.notes += whole.notes
        return whole, Counts(statistics=_statistics(whole.pairs), num_rows=len(pairs))
    open_pairs = partial(
        StreamedPairs,
        rows.rows,
        pair_renderer(state.renderer, max_length=kept_tokens(config, state.context_tokens)),
        name=rows.name,
        batch_size=config.batch_size,
        seed=config.seed,
        on_bad_row=config.on_bad_row,
        is_held_out=rows.is_held_out,
    )
    streamed = await asyncio.to_thread(open_pairs)
    statistics = _statistics(streamed.pairs)
    return streamed, estimated(statistics, num_sampled=streamed.num_sampled, num_rows=streamed.num_rows)


def _statistics(pairs: Sequence[Pair]) -> ExampleStatistics:
    return example_statistics([each for pair in pairs for each in pair.examples])


def _comparison_notes(config: PreferenceSettings) -> list[str]:
    if config.preference_model is not None or is_embedded(config):
        return []
    return [
        "held-out answers are compared with the chosen and the rejected one letter by letter, which tells little of "
        "free text; with preference_model=WEIGHTS they are judged, and there is a win rate"
    ]


def _cut(state: PreferenceState, pairs: Sequence[Pair], what: str) -> list[str]:
    num_cut = sum(any(each.num_cut_tokens for each in pair.examples) for pair in pairs)
    return cut_notes(num_cut, len(pairs), what, state.config, state.context_tokens)


def preview(state: PreferenceState) -> list[list[tuple[str, bool]]]:
    """The first pair, chosen and rejected, as pieces of text, each with whether it is trained on."""
    tokenizer = get_tokenizer(state.config.model_name)
    return [preview_example(example, tokenizer) for example in state.dataset.pairs[0].examples]


async def _render(state: PreferenceState, rows: Sequence[PreferenceRow]) -> list[Pair]:
    """Tokenize in a thread, which nobody can cancel: it sees for itself that the run has been stopped meanwhile."""
    is_over = threading.Event()

    def heeding_the_end() -> Iterator[PreferenceRow]:
        for row in rows:
            if is_over.is_set():
                raise asyncio.CancelledError("tokenizing stopped")
            yield row

    bad = BadRows(state.config.on_bad_row)
    render = partial(render_pairs, max_length=kept_tokens(state.config, state.context_tokens), bad=bad)
    try:
        return await asyncio.to_thread(render, heeding_the_end(), state.renderer)
    finally:
        is_over.set()
        state.notes += bad.notes


@stage(
    reads=("config", "loss", "dataset", "held_out", "answers", "notes", "renderer", "total_steps", "evaluators"),
    writes=("folder", "checkpoints", "cursor", "session", "objective", "reference", "judge", "evaluations"),
    needs=("service",),
    uses=("completer",),
)
async def init_session(state: PreferenceState) -> None:
    """Open the run folder and then the session: fresh, from weights, or where a checkpoint of the folder left off; and
    the reference. A loss that the service has is computed there.
    """
    await open_run(state)
    _refuse_longer(state)
    adapters = state.context.adapters
    with service_errors("asking which losses the service has"):
        offered = await state.session.service.pair_losses()
    offer = offered if state.config.loss_fn in offered.names else None
    state.objective = pair_objective(state.config, offer)
    state.reference = await open_reference(
        state.config, state.loss, state.session, state.folder, adapters.registry, offer
    )
    state.judge = await _open_judge(state)
    state.evaluations += _held_out(state) + scheduled_evaluators(
        state.evaluators, state.telemetry, state.folder.evaluations
    )


async def _open_judge(state: PreferenceState) -> AnswerJudge | None:
    """Who compares held-out answers, where somebody is named and there are some."""
    if state.config.preference_model is None or state.answers is None:
        return None
    adapters = state.context.adapters
    models = SecondModels(lambda name: open_sampler(state.session.service, name, adapters.registry), adapters.completer)
    return AnswerJudge(
        await open_preference_model(state.config, models),
        read_initial=partial(state.folder.read_answers, 0),
        keep=partial(keep_noted, state.folder.evaluations, "answers", "Held-out answers"),
    )


def _refuse_longer(state: PreferenceState) -> None:
    """What a service takes is known once the session is open, and may be less than the model could."""
    limit = state.session.context_tokens
    longest = max(pair.longest_tokens for pair in [*state.dataset.pairs, *state.held_out])
    if isinstance(state.dataset, StreamedPairs) and limit is not None and longest <= limit:
        state.dataset.cut_to(limit)  # what is longer than all of the sample
    if state.answers is not None:
        longest = max(longest, state.answers.longest_tokens)
    if limit is not None and longest > limit:
        raise InputError(
            f"{state.config.model_name} takes {limit:,} tokens at this service, and the longest prompt with an answer "
            f"has {longest:,}; set max_length={limit}, and eval_max_tokens or num_eval lower"
        )


def _held_out(state: PreferenceState) -> list[ScheduledEvaluation]:
    if not state.held_out:
        return []
    evaluation = PairEvaluation(
        pairs=state.held_out,
        answers=state.answers,
        judge=state.judge,
        reference=state.reference,
        settings=state.config,
        telemetry=state.telemetry,
        keep=state.folder.write_answers,
    )
    cadence = Cadence(every=state.config.eval_every, at_start=True)
    return [ScheduledEvaluation(name="held out", evaluation=evaluation, cadence=cadence)]


def _source(state: PreferenceState) -> BatchSource[Batch, PairPayload]:
    pairs = PairAssembler(state.reference, state.telemetry)

    async def assemble(batch: Batch) -> Assembled[PairPayload]:
        if not isinstance(batch, StreamedPairBatch):
            return await pairs(batch)
        return replace(await pairs(batch.pairs), metrics=batch_metrics(batch.statistics, batch.num_skipped))

    return batch_source(state, assemble)


def preference_workflow(config: PreferenceSettings) -> Workflow[PreferenceState]:
    """The stages of a run over preferences."""
    return training_workflow(
        name="preference",
        state_class=PreferenceState,
        start=lambda context: PreferenceState(context=context, config=config),
        setup=(
            check_preference_model,
            load_dataset,
            init_tokenizer,
            build_preference_dataset,
            init_evaluators,
            init_session,
        ),
        get_work=SlotStage(
            name="get_preference_batch",
            make=_source,
            reads=("reference", *BATCHED),
            parts=("compute_reference_logprobs",),
        ),
        forward_backward=objective_slot("dpo_forward_backward"),
        log=log_slot("log_dpo_metrics", event=events.DPO_STEP),
        descent=Descent.DPO_TRAINED_FROM,
        result=preference_result,
        facts=facts,
        previews=preview,
        data_files=sources_of(config, "preferences"),
    )
