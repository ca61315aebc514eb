"""A preference model: comparisons in, an adapter that says which of two answers is better out."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import tinker

from cookhouse import algorithms as alg
from cookhouse.chat import LABELS, ComparisonRenderer, Renderer
from cookhouse.data import (
    BadRows,
    ComparisonRow,
    DataSource,
    Example,
    SupervisedDataset,
    mark_remarks,
    null_remarks,
    read_comparisons,
    render_comparisons,
    usable_comparisons,
)
from cookhouse.envs import evenly_spaced
from cookhouse.evals import comparison_metrics, judge_comparisons, note_comparisons
from cookhouse.grading import GenerativePreferenceModel
from cookhouse.models.catalog import context_tokens
from cookhouse.runs import Figure, Preview
from cookhouse.settings import PreferenceModelSettings
from cookhouse.telemetry import Entry, Recording, ResultNote, Telemetry, Values, keys
from cookhouse.training import CROSS_ENTROPY, SamplingClient, TrainingClient, as_datums

_HELD_OUT = (
    (keys.TEST_PAIR_ACCURACY, "held-out comparisons judged rightly", True),
    ("test/accuracy_low", "of which the 95% interval begins at", True),
    ("test/accuracy_high", "and ends at", True),
    (keys.TEST_NLL, "held-out loss (nats per label)", False),
    ("test/order_disagreement", "held-out comparisons whose orders disagree", True),
)


@dataclass(frozen=True, kw_only=True)
class TokenizedComparisons:
    """Comparisons as tokens to train on, and those held out."""

    renderer: ComparisonRenderer
    dataset: SupervisedDataset
    test: Sequence[ComparisonRow]
    """Held-out rows that are not truncated."""
    context_tokens: int | None


@dataclass(kw_only=True)
class PreferenceModelState(alg.TrainingState):
    """State that the stages of a run that trains a preference model share."""

    config: PreferenceModelSettings
    data: alg.SplitRows[ComparisonRow] = field(init=False)
    comparisons: TokenizedComparisons = field(init=False)

    def data_facts(self) -> Mapping[str, str]:
        """Comparisons, tokens and labels."""
        found, test = self.comparisons.dataset.statistics, self.comparisons.test
        labels = Counter(row.label for row in self.data.train)
        counts = ", ".join(f"{labels[label]:,} {label}" for label in LABELS if labels[label])
        return {
            "comparisons": f"{len(self.data.train):,} to train on ({counts}), {len(test):,} held out",
            "orders": "both of each comparison" if self.config.swap else "one of each comparison, drawn by the seed",
            "tokens": f"{found.num_tokens:,}, of which {found.num_trained_tokens:,} are labels",
            "context": alg.context_fact(self.comparisons.context_tokens),
            "longest example": f"{found.longest_tokens:,} tokens",
        }

    def previews(self) -> Sequence[Preview]:
        """The first example."""
        return alg.previews_of(self.comparisons.dataset.examples[:1], self.config.model_name)

    def figures(self, first: alg.Row, last: alg.Row, after: alg.Row) -> Sequence[Figure]:
        """Held-out accuracy with its interval, loss and order disagreement, and the training loss."""
        return [
            *alg.held_out_figures(_HELD_OUT, first, after),
            alg.trained_figure(keys.TRAIN_LOSS, "training loss", first, last),
        ]


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
        return alg.record_metrics(self.telemetry, step, comparison_metrics(judged))


@alg.stage(doing="reading the data", uses=("datasets",))
async def load_dataset(context: alg.RunContext, config: PreferenceModelSettings) -> alg.SplitRows[ComparisonRow]:
    """Read the comparisons to train on and, evenly spaced through the held-out ones, those to evaluate on."""
    data = await asyncio.to_thread(_read, config, alg.recorded_sources(config, "preferences", context.folder.data))
    context.notes += data.notes
    return data


def _read(config: PreferenceModelSettings, sources: Mapping[str, DataSource]) -> alg.SplitRows[ComparisonRow]:
    bad = BadRows(config.on_bad_row)
    rows: dict[str, list[ComparisonRow]] = {}
    num_ties = 0
    nulls: list[str] = []
    for name, source in sources.items():
        alg.check_preferences(source)
        read = read_comparisons(source, bad=bad)
        nulls += null_remarks(read, what="comparisons")
        rows[name], left_out = usable_comparisons(read, config.ties, bad)
        num_ties += left_out
    split = alg.split_rows(config, rows, seed=config.seed)
    ties = [ResultNote(f"{num_ties:,} ties are left out")] if num_ties else []
    test = evenly_spaced(split.test, config.num_eval)
    return replace(split, test=test, notes=[*bad.notes, *nulls, *ties, *split.notes])


@alg.stage(doing="tokenizing the data")
async def build_comparison_dataset(
    context: alg.RunContext, config: PreferenceModelSettings, data: alg.SplitRows[ComparisonRow], renderer: Renderer
) -> tuple[TokenizedComparisons, alg.Steps, alg.Objective[Any], PreferenceModelSettings]:
    """Tokenize, and know from it how many steps there will be."""
    notes, comparisons = context.notes, ComparisonRenderer(renderer)
    notes += await asyncio.to_thread(alg.settings_notes, config)
    limit = await asyncio.to_thread(context_tokens, config.model_name)
    length = alg.kept_tokens(config, limit)
    bad = BadRows(config.on_bad_row)
    render = partial(render_comparisons, max_length=length, seed=config.seed, bad=bad)
    examples = await asyncio.to_thread(render, data.train, comparisons, in_both_orders=config.swap)
    notes += bad.notes
    notes += alg.cut_notes(sum(each.num_cut_tokens > 0 for each in examples), len(examples), "examples", config, limit)
    notes += mark_remarks(data.train, renderer.encoder, what="comparisons")
    dataset = SupervisedDataset(examples, batch_size=config.batch_size, seed=config.seed)
    num_examples = len(dataset.examples)
    config = alg.fit_batch(context, config, alg.batches_of(num_examples), f"{num_examples:,} examples")
    dataset.batch_size = config.batch_size
    notes += dataset.notes
    test = await asyncio.to_thread(_whole, config, data.test, comparisons, length, notes)
    counts = alg.Counts(statistics=dataset.statistics, num_rows=num_examples)
    steps = alg.planned_steps(context, config, len(dataset), partial(alg.expected_training, [(dataset, counts)]))
    alg.tell_previews(context, dataset.examples[:1], config.model_name)
    tokenized = TokenizedComparisons(renderer=comparisons, dataset=dataset, test=test, context_tokens=limit)
    return tokenized, steps, CROSS_ENTROPY, config


def _whole(
    config: PreferenceModelSettings,
    rows: Sequence[ComparisonRow],
    renderer: ComparisonRenderer,
    length: int,
    notes: list[str],
) -> Sequence[ComparisonRow]:
    """Held-out rows that are not truncated in any order."""
    bad = BadRows(config.on_bad_row)
    held_out: Sequence[Example] = render_comparisons(
        rows, renderer, max_length=length, in_both_orders=True, seed=config.seed, bad=bad
    )
    notes += bad.notes
    whole = {example.source for example in held_out if not example.num_cut_tokens}
    if lost := [row for row in rows if row.source not in whole]:
        notes.append(
            ResultNote(
                f"{len(lost):,} of {len(rows):,} held-out comparisons are longer than {length:,} tokens and are left "
                f"out; the first is {lost[0].source}"
            )
        )
    return [row for row in rows if row.source in whole]


@alg.stage(doing="loading the model", needs=("service",))
async def init_session(
    context: alg.RunContext,
    config: PreferenceModelSettings,
    comparisons: TokenizedComparisons,
    steps: alg.Steps,
    evaluators: Sequence[alg.NamedEvaluator],
) -> tuple[alg.OpenedRun, list[alg.ScheduledEvaluation]]:
    """Open the run directory and then the session: fresh, from weights, or where a checkpoint left off."""
    opened = await alg.open_run(context, config, steps, evaluators)
    alg.refuse_longer(config, opened, comparisons.dataset.statistics.longest_tokens, "example")
    held_out = ComparisonEvaluation(
        rows=comparisons.test,
        renderer=comparisons.renderer,
        telemetry=context.telemetry,
        keep=partial(alg.keep_noted, opened.folder.evaluations, "comparisons", "Held-out comparisons"),
    )
    return opened, alg.scheduled(context, config, opened, evaluators, held_out if comparisons.test else None)


@alg.stage()
def get_comparison_batch(
    comparisons: TokenizedComparisons, steps: alg.Steps, opened: alg.OpenedRun
) -> alg.BatchSource[Sequence[tinker.Datum], None]:
    """The batches, one prepared ahead."""
    return alg.batch_source(comparisons.dataset, as_datums, steps, opened)


def preference_model_workflow(config: PreferenceModelSettings) -> alg.Workflow[PreferenceModelState]:
    """The stages of a run that trains a preference model."""
    return alg.training_workflow(
        name="preference_model",
        state_class=PreferenceModelState,
        inputs={"config": config},
        setup=(load_dataset, alg.init_tokenizer, build_comparison_dataset, alg.init_evaluators, init_session),
        loop=alg.training_loop(
            get_work=get_comparison_batch,
            forward_backward=alg.objective_slot("forward_backward"),
            log=alg.log_slot("log_step_metrics"),
        ),
        data_files=alg.sources_of(config, "preferences"),
    )
