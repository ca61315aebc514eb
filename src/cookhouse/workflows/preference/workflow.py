"""Learning from preferences: pairs of answers, rendered to datums, logprobs of a reference, and a loss over pairs.

The formulas of the losses are in `cookhouse.losses.pair_losses`; DPO is https://arxiv.org/abs/2305.18290.
"""

import asyncio
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

from cookhouse import algorithms as alg
from cookhouse.chat import Renderer
from cookhouse.data import (
    BadRows,
    Example,
    PreferenceRow,
    example_statistics,
    mark_remarks,
    pair_remarks,
    parse_each,
    preference_of,
)
from cookhouse.envs import SecondModels, open_preference_model
from cookhouse.losses.pair_losses import PAIR_LOSSES
from cookhouse.models.catalog import context_tokens
from cookhouse.registry import Descent
from cookhouse.settings import PreferenceSettings, is_embedded
from cookhouse.telemetry import events
from cookhouse.workflows.preference.evaluation import AnswerJudge, PairAnswerEvaluation, PairEvaluation, askable
from cookhouse.workflows.preference.rows import PreferenceData, read_data
from cookhouse.workflows.preference.state import PreferenceState, TokenizedPairs
from cookhouse.workflows.preference.stream import StreamedPairBatch, StreamedPairs


@alg.stage(doing="reading the data", uses=("datasets",))
async def load_dataset(context: alg.RunContext, config: PreferenceSettings) -> PreferenceData:
    """Read the pairs to train on and, evenly spaced through the held-out ones, those to evaluate on."""
    PAIR_LOSSES.find(config.pair_loss)  # refuses one that is not there
    data = await asyncio.to_thread(read_data, config, alg.recorded_sources(config, "preferences", context.folder.data))
    context.notes += data.notes
    return data


@alg.stage(doing="tokenizing the data")
async def build_preference_dataset(
    context: alg.RunContext, config: PreferenceSettings, data: PreferenceData, renderer: Renderer
) -> tuple[TokenizedPairs, alg.Steps, PreferenceSettings]:
    """Tokenize, and know from it how many steps there will be."""
    notes = context.notes
    # As by reward, rates that are right here are well below those for conversations.
    notes += await asyncio.to_thread(partial(alg.settings_notes, config, by_reward=True))
    limit = await asyncio.to_thread(context_tokens, config.model_name)
    length = alg.kept_tokens(config, limit)
    dataset: alg.PairDataset | StreamedPairs
    if data.streamed is None:
        pairs = await _render(context, config, data.train, renderer, length)
        notes += [*_cut(pairs, "pairs", config, limit), *pair_remarks(data.train)]
        notes += mark_remarks(data.train, renderer.encoder, what="pairs")
        dataset = alg.PairDataset(pairs, batch_size=config.batch_size, seed=config.seed)
        config = alg.fit_batch(context, config, alg.batches_of(len(dataset.pairs)), f"{len(dataset.pairs):,} pairs")
        dataset.batch_size = config.batch_size
        notes += dataset.notes
        counts = alg.Counts(statistics=example_statistics(_examples(dataset.pairs)), num_rows=len(pairs))
    else:
        dataset, counts = await asyncio.to_thread(_streamed, config, data, renderer, length, notes)
        config = alg.fit_batch(context, config, alg.batches_of(counts.num_rows), f"{counts.num_rows:,} pairs")
        dataset.batch_size = config.batch_size
    held_out = await _render(context, config, data.test, renderer, length)
    notes += _cut(held_out, "held-out pairs", config, limit)
    notes += alg.left_out([pair.lost_answer for pair in held_out if pair.lost_answer], len(held_out), "held-out pairs")
    answers = None
    if rows := askable(data.test, renderer):
        answers = PairAnswerEvaluation(rows, renderer, max_tokens=config.eval_max_tokens, context_tokens=limit)
        notes += [*answers.notes, *_comparison_notes(config)]
    steps = alg.planned_steps(context, config, len(dataset), partial(_expected_tokens, config, dataset, counts))
    alg.tell_previews(context, dataset.pairs[0].examples, config.model_name)
    tokenized = TokenizedPairs(
        dataset=dataset,
        counts=counts,
        held_out=[pair for pair in held_out if pair.lost_answer is None],
        answers=answers,
        context_tokens=limit,
    )
    return tokenized, steps, config


def _streamed(
    config: PreferenceSettings, data: PreferenceData, renderer: Renderer, length: int, notes: list[str]
) -> tuple[StreamedPairs, alg.Counts]:
    """Batches of rows that are read as they are trained on, with figures estimated from some of them."""
    assert data.streamed is not None
    name = data.streamed.name
    streamed = StreamedPairs(
        data.streamed.rows,
        alg.pair_renderer(renderer, max_length=length),
        name=name,
        batch_size=config.batch_size,
        seed=config.seed,
        on_bad_row=config.on_bad_row,
        is_held_out=data.streamed.is_held_out,
    )
    seen = parse_each(streamed.sampled_rows(), preference_of, BadRows("skip"))
    what = f"pairs from all over {name}"
    notes += [*pair_remarks(seen, what=what), *mark_remarks(seen, renderer.encoder, what=what)]
    statistics = example_statistics(_examples(streamed.pairs))
    return streamed, alg.estimated(statistics, num_sampled=streamed.num_sampled, num_rows=streamed.num_rows)


def _examples(pairs: Sequence[alg.Pair]) -> list[Example]:
    return [each for pair in pairs for each in pair.examples]


def _expected_tokens(
    config: PreferenceSettings, dataset: alg.PairDataset | StreamedPairs, counts: alg.Counts, total: int, per_epoch: int
) -> alg.ExpectedTokens:
    expected = alg.expected_training([(dataset, counts)], total, per_epoch)
    if not PAIR_LOSSES.find(config.pair_loss).needs_reference:
        return expected
    return replace(expected, on_top="as many that a reference scores; evaluations")


def _comparison_notes(config: PreferenceSettings) -> list[str]:
    if config.preference_model is not None or is_embedded(config):
        return []
    return [
        "held-out answers are compared with the chosen and the rejected one letter by letter, which tells little of "
        "free text; with preference_model=WEIGHTS they are judged, and there is a win rate"
    ]


def _cut(pairs: Sequence[alg.Pair], what: str, config: PreferenceSettings, limit: int | None) -> list[str]:
    num_cut = sum(any(each.num_cut_tokens for each in pair.examples) for pair in pairs)
    return alg.cut_notes(num_cut, len(pairs), what, config, limit)


async def _render(
    context: alg.RunContext, config: PreferenceSettings, rows: Sequence[PreferenceRow], renderer: Renderer, length: int
) -> list[alg.Pair]:
    """Tokenize in a thread, which nobody can cancel: it sees for itself that the run has been stopped meanwhile."""
    is_over = threading.Event()

    def heeding_the_end() -> Iterator[PreferenceRow]:
        for row in rows:
            if is_over.is_set():
                raise asyncio.CancelledError("tokenizing stopped")
            yield row

    bad = BadRows(config.on_bad_row)
    try:
        return await asyncio.to_thread(
            partial(alg.render_pairs, heeding_the_end(), renderer, max_length=length, bad=bad)
        )
    finally:
        is_over.set()
        context.notes += bad.notes


@alg.stage(doing="loading the model", needs=("service",), uses=("completer",))
async def init_session(
    context: alg.RunContext,
    config: PreferenceSettings,
    pairs: TokenizedPairs,
    steps: alg.Steps,
    evaluators: Sequence[alg.NamedEvaluator],
) -> tuple[alg.OpenedRun, alg.Objective[alg.PairPayload], alg.Reference, list[alg.ScheduledEvaluation]]:
    """Open the run directory and then the session: fresh, from weights, or where a checkpoint of the folder left off;
    and the reference. A loss that the service has is computed there.
    """
    opened = await alg.open_run(context, config, steps, evaluators)
    _refuse_longer(config, pairs, opened)
    objective, reference = await alg.open_pairs(context, config, opened, with_logprobs=config.num_shown_examples > 0)
    judge = await _open_judge(context, config, opened) if pairs.answers is not None else None
    held_out = PairEvaluation(
        pairs=pairs.held_out,
        answers=pairs.answers,
        judge=judge,
        reference=reference,
        settings=config,
        telemetry=context.telemetry,
        keep=opened.folder.write_answers,
    )
    evaluations = alg.scheduled(context, config, opened, evaluators, held_out if pairs.held_out else None)
    return opened, objective, reference, evaluations


async def _open_judge(context: alg.RunContext, config: PreferenceSettings, opened: alg.OpenedRun) -> AnswerJudge | None:
    """Judge of held-out answers, where one is named."""
    if config.preference_model is None:
        return None
    service, folder = opened.session.service, opened.folder
    models = SecondModels(lambda name: alg.open_sampler(service, name, context.registry), context.adapters.completer)
    return AnswerJudge(
        await open_preference_model(config, models),
        read_initial=partial(folder.read_answers, 0),
        keep=partial(alg.keep_noted, folder.evaluations, "answers", "Held-out answers"),
    )


def _refuse_longer(config: PreferenceSettings, pairs: TokenizedPairs, opened: alg.OpenedRun) -> None:
    limit, dataset = opened.session.context_tokens, pairs.dataset
    longest = max(pair.longest_tokens for pair in [*dataset.pairs, *pairs.held_out])
    if isinstance(dataset, StreamedPairs) and limit is not None and longest <= limit:
        dataset.cut_to(limit)  # what is longer than all of the sample
    if pairs.answers is not None:
        longest = max(longest, pairs.answers.longest_tokens)
    alg.refuse_longer(config, opened, longest, "prompt with an answer", ", and eval_max_tokens or num_eval lower")


@alg.stage(parts=("compute_reference_logprobs",))
def get_preference_batch(
    context: alg.RunContext, pairs: TokenizedPairs, reference: alg.Reference, steps: alg.Steps, opened: alg.OpenedRun
) -> alg.BatchSource[Sequence[alg.Pair] | StreamedPairBatch, alg.PairPayload]:
    """Batches of pairs with the reference's logprobs, one prepared ahead."""
    with_reference = alg.PairAssembler(reference, context.telemetry)

    async def assemble(batch: Sequence[alg.Pair] | StreamedPairBatch) -> alg.Assembled[alg.PairPayload]:
        if not isinstance(batch, StreamedPairBatch):
            return await with_reference(batch)
        assembled = await with_reference(batch.pairs)
        return replace(assembled, metrics=alg.batch_metrics(batch.statistics, batch.num_skipped))

    return alg.batch_source(pairs.dataset, assemble, steps, opened)


def preference_workflow(config: PreferenceSettings) -> alg.Workflow[PreferenceState]:
    """The stages of a run over preferences."""
    return alg.training_workflow(
        name="preference",
        state_class=PreferenceState,
        inputs={"config": config},
        setup=(
            alg.check_preference_model,
            load_dataset,
            alg.init_tokenizer,
            build_preference_dataset,
            alg.init_evaluators,
            init_session,
        ),
        loop=alg.training_loop(
            get_work=get_preference_batch,
            forward_backward=alg.objective_slot("dpo_forward_backward"),
            log=alg.log_slot("log_dpo_metrics", event=events.DPO_STEP),
        ),
        descent=Descent.DPO_TRAINED_FROM,
        data_files=alg.sources_of(config, "preferences"),
    )
