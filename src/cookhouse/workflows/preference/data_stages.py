"""The stages of a run over preferences that read its pairs and tokenize them."""

import asyncio
import json
import threading
from collections.abc import Iterator, Sequence
from functools import partial

from cookhouse.algorithms.base.batch_size import batches_of, fit_batch
from cookhouse.algorithms.base.counts import Counts, estimated
from cookhouse.algorithms.base.facts import settings_notes
from cookhouse.algorithms.base.rows import cut_notes, kept_tokens, recorded_sources
from cookhouse.algorithms.base.run import set_steps
from cookhouse.algorithms.pairs.dataset import Pair, PairDataset, left_out, pair_renderer, render_pairs
from cookhouse.algorithms.stages.stage import stage
from cookhouse.data import BadRows, PreferenceRow, example_statistics, parse_each
from cookhouse.data.batches.examples import ExampleStatistics
from cookhouse.data.rows.comparisons import preference_of
from cookhouse.data.rows.marks import mark_remarks
from cookhouse.data.rows.remarks import pair_remarks
from cookhouse.evals import preview_example
from cookhouse.losses.pair_losses import PAIR_LOSSES
from cookhouse.models.catalog import context_tokens
from cookhouse.models.tokenizers import get_tokenizer
from cookhouse.settings import PreferenceSettings, is_embedded
from cookhouse.workflows.preference.evaluation import PairAnswerEvaluation, askable
from cookhouse.workflows.preference.rows import read_data
from cookhouse.workflows.preference.state import PreferenceState
from cookhouse.workflows.preference.stream import StreamedPairs


@stage(doing="reading the data", reads=("config",), writes=("loss", "data", "notes"), uses=("datasets",))
async def load_dataset(state: PreferenceState) -> None:
    """Read the pairs to train on and, evenly spaced through the held-out ones, those to evaluate on."""
    config = state.config
    state.loss = PAIR_LOSSES.find(config.pair_loss)
    sources = recorded_sources(config, "preferences", state.context.folder.data)
    state.data = await asyncio.to_thread(read_data, config, sources)
    state.notes += state.data.notes


@stage(
    doing="tokenizing the data",
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
        state.answers = PairAnswerEvaluation(
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
        state.notes += [*_cut(state, pairs, "pairs"), *pair_remarks(state.data.train)]
        state.notes += mark_remarks(state.data.train, state.renderer.encoder, what="pairs")
        whole = PairDataset(pairs, batch_size=config.batch_size, seed=config.seed)
        whole.batch_size = fit_batch(state, batches_of(len(whole.pairs)), f"{len(whole.pairs):,} pairs")
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
    streamed.batch_size = fit_batch(state, batches_of(streamed.num_rows), f"{streamed.num_rows:,} pairs")
    seen = parse_each(streamed.sampled_rows(), preference_of, BadRows("skip"))
    what = f"pairs from all over {rows.name}"
    state.notes += [*pair_remarks(seen, what=what), *mark_remarks(seen, state.renderer.encoder, what=what)]
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
