"""The stages of a supervised run that read its conversations and tokenize them."""

import asyncio
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from cookhouse import algorithms as alg
from cookhouse.chat import Renderer
from cookhouse.data import (
    BadRows,
    Conversation,
    Example,
    MixedDataset,
    StreamedDataset,
    SupervisedDataset,
    conversation_of,
    conversation_remarks,
    duplicate_remarks,
    example_renderer,
    example_statistics,
    left_untrained,
    mark_remarks,
    parse_each,
    parse_train_on_what,
    render_examples,
    shares,
    without_empty_answers,
)
from cookhouse.errors import InputError
from cookhouse.evals import ExactMatchEvaluator, NLLEvaluator, labels_of
from cookhouse.models.catalog import context_tokens
from cookhouse.models.tokenizers import get_tokenizer
from cookhouse.settings import BUNDLED, SupervisedSettings
from cookhouse.training import supervised_objective
from cookhouse.workflows.supervised.rows import RunData, StreamedConversations, TrainingRows, messages_of, read_data
from cookhouse.workflows.supervised.state import Dataset, Part, Tokenized

_NUM_PREVIEWS = 2


@alg.stage(doing="reading the data", uses=("datasets",))
async def load_dataset(context: alg.RunContext, config: SupervisedSettings) -> tuple[RunData, alg.Objective[None]]:
    """Read the conversations to train on, or open them to be streamed; and, evenly spaced through the held-out ones,
    those to evaluate on.
    """
    objective = supervised_objective(config.loss_fn)
    data = await asyncio.to_thread(
        read_data,
        config,
        alg.recorded_sources(config, "conversations", context.folder.data, messages_of(config)),
    )
    context.notes += data.notes
    if config.dataset_path not in (None, BUNDLED) and not isinstance(data.conversations, StreamedConversations):
        context.notes += await asyncio.to_thread(duplicate_remarks, data.conversations, data.test)
    return data, objective


@alg.stage(doing="tokenizing the data")
async def build_supervised_dataset(
    context: alg.RunContext, config: SupervisedSettings, data: RunData, renderer: Renderer
) -> tuple[Tokenized, alg.Steps, SupervisedSettings]:
    """Tokenize, and know from it how many steps there will be."""
    notes = context.notes
    notes += await asyncio.to_thread(alg.settings_notes, config)
    limit = await asyncio.to_thread(context_tokens, config.model_name)
    names = [part.name for part in data.train]
    sizes = [config.batch_size] if len(names) == 1 else shares(config.batch_size, data.weights, names)
    tokenizing = _Tokenizing(config, renderer, limit, notes)
    built = [await tokenizing.batches(data, part, size) for part, size in zip(data.train, sizes, strict=True)]
    parts = [part for part, _, _ in built]
    dataset: Dataset = parts[0] if len(parts) == 1 else MixedDataset(parts)
    part_counts = [counts for _, counts, _ in built]
    config = _fit_batch(context, config, parts, data.weights, names)
    notes += [note for part in parts if isinstance(part, SupervisedDataset) for note in part.notes]
    notes += _mixture(dataset, names)
    nll, exact_match = await tokenizing.evaluators(data)
    expected = partial(alg.expected_training, list(zip(parts, part_counts, strict=True)))
    steps = alg.planned_steps(context, config, len(dataset), expected)
    tokenized = Tokenized(
        dataset=dataset,
        counts=alg.added(part_counts),
        shown=[example for _, _, examples in built for example in examples[:_NUM_PREVIEWS]][:_NUM_PREVIEWS],
        nll=nll,
        exact_match=exact_match,
        context_tokens=limit,
    )
    alg.tell_previews(context, tokenized.shown, config.model_name)
    return tokenized, steps, config


@dataclass(frozen=True)
class _Tokenizing:
    """Rendering of conversations by the settings of a run; what a person should know of them becomes a note."""

    config: SupervisedSettings
    renderer: Renderer
    context_tokens: int | None
    notes: list[str]

    async def batches(
        self, data: RunData, part: TrainingRows, batch_size: int
    ) -> tuple[Part, alg.Counts, Sequence[Example]]:
        """The batches of one set, with figures of its examples and the first of them."""
        config = self.config
        mode = parse_train_on_what(config.train_on_what)
        if part.conversations is not None:
            examples = await self.render(part.conversations)
            self.notes.extend(conversation_remarks(part.conversations, mode))
            self.notes.extend(await asyncio.to_thread(mark_remarks, part.conversations, self.renderer.encoder))
            self.notes.extend(self.cut(examples, "examples"))
            whole = SupervisedDataset(examples, batch_size=batch_size, reduction=config.reduction, seed=config.seed)
            return whole, alg.Counts(statistics=whole.statistics, num_rows=len(part.conversations)), whole.examples
        render = example_renderer(self.renderer, mode, max_length=alg.kept_tokens(config, self.context_tokens))
        skips = config.empty_answers == "skip"

        def render_whole(conversation: Conversation) -> Sequence[Example]:
            kept = without_empty_answers(conversation, mode) if skips else conversation
            return () if kept is None else render(kept)

        streamed = StreamedDataset(
            part.rows,
            render_whole,
            name=part.name,
            batch_size=batch_size,
            reduction=config.reduction,
            seed=config.seed,
            on_bad_row=config.on_bad_row,
            is_left_out=data.is_held_out,
        )
        sample, num_sampled = await asyncio.to_thread(streamed.sample)
        seen = parse_each(streamed.sampled_rows(), conversation_of, BadRows("skip"))
        what = f"conversations from all over {part.name}"
        if skips:
            seen, remarks = left_untrained(seen, mode, what=what)
            self.notes.extend(remarks)
        self.notes.extend(conversation_remarks(seen, mode, what=what))
        self.notes.extend(mark_remarks(seen, self.renderer.encoder, what=what))
        counts = alg.estimated(example_statistics(sample), num_sampled=num_sampled, num_rows=streamed.num_rows)
        return streamed, counts, sample

    async def evaluators(self, data: RunData) -> tuple[NLLEvaluator | None, ExactMatchEvaluator | None]:
        """Evaluators of what is held out: its loss, and of conversations how many are answered exactly."""
        if not data.test:
            return None, None
        config = self.config
        held_out = await self.render(data.test)
        self.notes.extend(self.cut(held_out, "held-out examples"))
        nll = NLLEvaluator(held_out, get_tokenizer(config.model_name))
        asked = [conversation for conversation in data.test if conversation.text is None]
        if not asked:
            return nll, None
        read = () if isinstance(data.conversations, StreamedConversations) else data.conversations
        exact_match = ExactMatchEvaluator(
            asked,
            self.renderer,
            max_tokens=config.eval_max_tokens,
            context_tokens=self.context_tokens,
            group_by="skill",
            labels=labels_of(config.labels, [*read, *data.test], self.renderer) if config.labels else None,
            averaging=config.label_averaging,
        )
        self.notes.extend(exact_match.notes)
        return nll, exact_match

    def cut(self, examples: Sequence[Example], what: str) -> list[str]:
        """Note on those that are truncated."""
        num_cut = sum(example.num_cut_tokens > 0 for example in examples)
        return alg.cut_notes(num_cut, len(examples), what, self.config, self.context_tokens)

    async def render(self, conversations: Sequence[Conversation]) -> list[Example]:
        """Tokenize in a thread, which nobody can cancel: it sees for itself that the run has been stopped meanwhile."""
        is_over = threading.Event()

        def heed_the_end(num_done: int, num_all: int) -> None:
            if is_over.is_set():
                raise asyncio.CancelledError(f"tokenizing stopped after {num_done} of {num_all} conversations")

        train_on_what = parse_train_on_what(self.config.train_on_what)
        bad = BadRows(self.config.on_bad_row)
        length = alg.kept_tokens(self.config, self.context_tokens)
        render = partial(render_examples, max_length=length, progress=heed_the_end, bad=bad)
        try:
            return await asyncio.to_thread(render, conversations, self.renderer, train_on_what)
        finally:
            is_over.set()
            self.notes.extend(bad.notes)


def _fit_batch(
    context: alg.RunContext,
    config: SupervisedSettings,
    parts: Sequence[Part],
    weights: Sequence[float],
    names: Sequence[str],
) -> SupervisedSettings:
    """Batches of another size, where the published one is too large for the data."""
    counts = [len(part.examples) if isinstance(part, SupervisedDataset) else part.num_rows for part in parts]

    def sizes_of(batch_size: int) -> list[int]:
        return [batch_size] if len(parts) == 1 else shares(batch_size, weights, names)

    def steps_of(batch_size: int) -> int:
        try:
            sizes = sizes_of(batch_size)
        except InputError:  # one of each does not fit
            return 0
        return max(alg.batches_of(count)(size) for count, size in zip(counts, sizes, strict=True))

    fitted = alg.fit_batch(context, config, steps_of, f"{sum(counts):,} examples")
    for part, size in zip(parts, sizes_of(fitted.batch_size), strict=True):
        part.batch_size = size
    return fitted


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
