"""The stages of a supervised run that read its conversations and tokenize them."""

import asyncio
import json
import threading
from collections.abc import Sequence
from functools import partial
from typing import Any

from cookhouse.data import (
    BadRows,
    Conversation,
    Example,
    MixedDataset,
    StreamedDataset,
    SupervisedDataset,
    example_statistics,
    parse_each,
    parse_train_on_what,
    shares,
)
from cookhouse.data.batches.examples import example_renderer, render_examples
from cookhouse.data.rows.conversations import conversation_of
from cookhouse.data.rows.marks import mark_remarks
from cookhouse.data.rows.remarks import conversation_remarks
from cookhouse.errors import InputError
from cookhouse.evals import ExactMatchEvaluator, NLLEvaluator, labels_of, preview_example
from cookhouse.models.catalog import context_tokens
from cookhouse.models.tokenizers import get_tokenizer
from cookhouse.telemetry import events
from cookhouse.training import (
    supervised_objective,
)
from cookhouse.workflows.base.batch_size import batches_of, fit_batch
from cookhouse.workflows.base.counts import Counts, added, estimated
from cookhouse.workflows.base.rows import cut_notes, kept_tokens, recorded_sources
from cookhouse.workflows.base.run import set_steps
from cookhouse.workflows.base.summary import settings_notes
from cookhouse.workflows.stages.stage import stage
from cookhouse.workflows.supervised.rows import StreamedConversations, TrainingRows, read_data
from cookhouse.workflows.supervised.state import Dataset, Part, SupervisedState

_NUM_PREVIEWS = 2


@stage(
    doing="reading the data",
    reads=("config",),
    writes=("data", "train", "test", "notes", "objective"),
    uses=("datasets",),
)
async def load_dataset(state: SupervisedState) -> None:
    """Read the conversations to train on, or open them to be streamed; and, evenly spaced through the held-out ones,
    those to evaluate on.
    """
    state.objective = supervised_objective(state.config.loss_fn)
    sources = recorded_sources(state.config, "conversations", state.context.folder.data)
    state.data = await asyncio.to_thread(read_data, state.config, sources)
    state.train, state.test = state.data.conversations, state.data.test
    state.notes += state.data.notes


@stage(
    doing="tokenizing the data",
    reads=("config", "data", "train", "test", "renderer"),
    writes=(
        "dataset",
        "counts",
        "part_counts",
        "shown",
        "context_tokens",
        "notes",
        "nll",
        "exact_match",
        "total_steps",
        "steps_per_epoch",
        "adam",
    ),
)
async def build_supervised_dataset(state: SupervisedState) -> None:
    """Tokenize, and know from it how many steps there will be."""
    config, data = state.config, state.data.with_conversations(state.train)
    state.notes += await asyncio.to_thread(settings_notes, config)
    state.context_tokens = await asyncio.to_thread(context_tokens, config.model_name)
    names = [part.name for part in data.train]
    sizes = [config.batch_size] if len(names) == 1 else shares(config.batch_size, data.weights, names)
    built = [await _build(state, part, size) for part, size in zip(data.train, sizes, strict=True)]
    parts = [part for part, _, _ in built]
    state.dataset = parts[0] if len(parts) == 1 else MixedDataset(parts)
    state.part_counts = [counts for _, counts, _ in built]
    state.counts = added(state.part_counts)
    state.shown = [example for _, _, examples in built for example in examples[:_NUM_PREVIEWS]]
    _fit_batch(state, names)
    state.notes += [note for part in parts if isinstance(part, SupervisedDataset) for note in part.notes]
    state.notes += _mixture(state.dataset, names)
    state.nll = state.exact_match = None
    if state.test:
        held_out = await _render(state, state.test)
        state.notes += _cut(state, held_out, "held-out examples")
        state.nll = NLLEvaluator(held_out, get_tokenizer(config.model_name))
        if asked := [conversation for conversation in state.test if conversation.text is None]:
            state.exact_match = ExactMatchEvaluator(
                asked,
                state.renderer,
                max_tokens=config.eval_max_tokens,
                context_tokens=state.context_tokens,
                group_by="skill",
                labels=_labels(state),
                averaging=config.label_averaging,
            )
            state.notes += state.exact_match.notes
    set_steps(state, len(state.dataset))
    for pieces in preview(state):
        state.telemetry.event(events.DATA_PREVIEW, pieces=json.dumps(pieces))


async def _build(state: SupervisedState, part: TrainingRows, batch_size: int) -> tuple[Part, Counts, Sequence[Example]]:
    """The batches of one set, with figures of its examples and the first of them."""
    config = state.config
    mode = parse_train_on_what(config.train_on_what)
    if part.conversations is not None:
        examples = await _render(state, part.conversations)
        state.notes += conversation_remarks(part.conversations, mode)
        state.notes += await asyncio.to_thread(mark_remarks, part.conversations, state.renderer.encoder)
        state.notes += _cut(state, examples, "examples")
        whole = SupervisedDataset(examples, batch_size=batch_size, reduction=config.reduction, seed=config.seed)
        return whole, Counts(statistics=whole.statistics, num_rows=len(part.conversations)), whole.examples
    streamed = StreamedDataset(
        part.rows,
        example_renderer(
            state.renderer,
            mode,
            max_length=kept_tokens(state.config, state.context_tokens),
        ),
        name=part.name,
        batch_size=batch_size,
        reduction=config.reduction,
        seed=config.seed,
        on_bad_row=config.on_bad_row,
        is_left_out=state.data.is_held_out,
    )
    sample, num_sampled = await asyncio.to_thread(streamed.sample)
    seen = parse_each(streamed.sampled_rows(), conversation_of, BadRows("skip"))
    what = f"conversations from all over {part.name}"
    state.notes += [
        *conversation_remarks(seen, mode, what=what),
        *mark_remarks(seen, state.renderer.encoder, what=what),
    ]
    counts = estimated(example_statistics(sample), num_sampled=num_sampled, num_rows=streamed.num_rows)
    return streamed, counts, sample


def _fit_batch(state: SupervisedState, names: Sequence[str]) -> None:
    """Batches of another size, where the published one is too large for the data."""
    parts: Sequence[Any] = state.dataset.parts if isinstance(state.dataset, MixedDataset) else [state.dataset]
    counts = [len(part.examples) if isinstance(part, SupervisedDataset) else part.num_rows for part in parts]

    def sizes_of(batch_size: int) -> list[int]:
        return [batch_size] if len(parts) == 1 else shares(batch_size, state.data.weights, names)

    def steps_of(batch_size: int) -> int:
        try:
            sizes = sizes_of(batch_size)
        except InputError:  # one of each does not fit
            return 0
        return max(batches_of(count)(size) for count, size in zip(counts, sizes, strict=True))

    chosen = fit_batch(state, steps_of, f"{sum(counts):,} examples")
    for part, size in zip(parts, sizes_of(chosen), strict=True):
        part.batch_size = size


def _labels(state: SupervisedState) -> Sequence[str] | None:
    if not state.config.labels:
        return None
    read = () if isinstance(state.train, StreamedConversations) else state.train
    return labels_of(state.config.labels, [*read, *state.test], state.renderer)


def _mixture(dataset: Dataset, names: Sequence[str]) -> list[str]:
    """Note on how often the smaller of several sets are read while the largest is, where that is more than once."""
    if not isinstance(dataset, MixedDataset):
        return []
    laps = [(name, len(dataset) / len(part)) for name, part in zip(names, dataset.parts, strict=True)]
    return [
        f"{name} is gone through {times:.1f} times in an epoch, of {len(dataset):,} steps"
        for name, times in laps
        if times > 1
    ]


def _cut(state: SupervisedState, examples: Sequence[Example], what: str) -> list[str]:
    num_cut = sum(example.num_cut_tokens > 0 for example in examples)
    return cut_notes(num_cut, len(examples), what, state.config, state.context_tokens)


def preview(state: SupervisedState) -> list[list[tuple[str, bool]]]:
    """The first examples as pieces of text, each with whether it is trained on."""
    tokenizer = get_tokenizer(state.config.model_name)
    return [preview_example(example, tokenizer) for example in state.shown[:_NUM_PREVIEWS]]


async def _render(state: SupervisedState, conversations: Sequence[Conversation]) -> list[Example]:
    """Tokenize in a thread, which nobody can cancel: it sees for itself that the run has been stopped meanwhile."""
    is_over = threading.Event()

    def heed_the_end(num_done: int, num_all: int) -> None:
        if is_over.is_set():
            raise asyncio.CancelledError(f"tokenizing stopped after {num_done} of {num_all} conversations")

    train_on_what = parse_train_on_what(state.config.train_on_what)
    bad = BadRows(state.config.on_bad_row)
    length = kept_tokens(state.config, state.context_tokens)
    render = partial(render_examples, max_length=length, progress=heed_the_end, bad=bad)
    try:
        return await asyncio.to_thread(render, conversations, state.renderer, train_on_what)
    finally:
        is_over.set()
        state.notes += bad.notes
