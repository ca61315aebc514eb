"""Rows from files, from the hub and from functions, as conversations, preferences or prompts; and the batches that a
supervised run trains on.
"""

from cookhouse.data.batches import stream
from cookhouse.data.batches.comparisons import render_comparisons, usable_comparisons
from cookhouse.data.batches.counting import count_items
from cookhouse.data.batches.datum import datum_from_example, shifted_datum
from cookhouse.data.batches.examples import (
    Example,
    ExampleStatistics,
    example_renderer,
    example_statistics,
    render_examples,
    rendered,
)
from cookhouse.data.batches.mix import MixedDataset, parse_weights, shares
from cookhouse.data.batches.stream import ShuffledRows, StreamedBatch, StreamedDataset, cut_example
from cookhouse.data.batches.supervised import SupervisedDataset
from cookhouse.data.config import build_renderer, parse_train_on_what
from cookhouse.data.fingerprint import Fingerprint, fingerprint_of
from cookhouse.data.parsing import BadRows, OnBadRow, parse_each
from cookhouse.data.rows.comparisons import paired, preference_of, read_judged
from cookhouse.data.rows.conversations import conversation_of, conversations_of, iter_rows, read_conversations
from cookhouse.data.rows.duplicates import duplicate_remarks
from cookhouse.data.rows.empty import is_empty_answer, left_untrained, without_empty_answers
from cookhouse.data.rows.held_out import held_out_prompts, is_drawn, prompt_key
from cookhouse.data.rows.labeled import LabeledRow
from cookhouse.data.rows.marks import mark_remarks
from cookhouse.data.rows.pairs import (
    ComparisonRow,
    PreferenceRow,
    PromptRow,
    comparison_from_row,
    prompt_from_row,
    question_from_row,
    read_comparisons,
    read_questions,
)
from cookhouse.data.rows.remarks import conversation_remarks, null_remarks, pair_remarks
from cookhouse.data.rows.shapes import Conversation, check_columns
from cookhouse.data.sources.columns import parse_columns
from cookhouse.data.sources.dialect import parse_delimiter
from cookhouse.data.sources.given import GivenRows
from cookhouse.data.sources.noop import NoopDatasetStore
from cookhouse.data.sources.parts import HeldOut, JoinedRows, SelectedRows, sampled
from cookhouse.data.sources.source import (
    DataSource,
    FileSource,
    HubSource,
    NamedSource,
    data_source,
    data_sources,
    from_store,
    held_out_source,
)
from cookhouse.data.sources.speakers import MessageRows, speaker_columns
from cookhouse.data.sources.store import DatasetStore, HubSplit, RawRow, Rows, iter_blocks, num_rows

__all__ = [
    "BadRows",
    "ComparisonRow",
    "Conversation",
    "DataSource",
    "DatasetStore",
    "Example",
    "ExampleStatistics",
    "FileSource",
    "Fingerprint",
    "GivenRows",
    "HeldOut",
    "HubSource",
    "HubSplit",
    "JoinedRows",
    "LabeledRow",
    "MessageRows",
    "MixedDataset",
    "NamedSource",
    "NoopDatasetStore",
    "OnBadRow",
    "PreferenceRow",
    "PromptRow",
    "RawRow",
    "Rows",
    "SelectedRows",
    "ShuffledRows",
    "StreamedBatch",
    "StreamedDataset",
    "SupervisedDataset",
    "build_renderer",
    "check_columns",
    "comparison_from_row",
    "conversation_of",
    "conversation_remarks",
    "conversations_of",
    "count_items",
    "cut_example",
    "data_source",
    "data_sources",
    "datum_from_example",
    "duplicate_remarks",
    "example_renderer",
    "example_statistics",
    "fingerprint_of",
    "from_store",
    "held_out_prompts",
    "held_out_source",
    "is_drawn",
    "is_empty_answer",
    "iter_blocks",
    "iter_rows",
    "left_untrained",
    "mark_remarks",
    "null_remarks",
    "num_rows",
    "pair_remarks",
    "paired",
    "parse_columns",
    "parse_delimiter",
    "parse_each",
    "parse_train_on_what",
    "parse_weights",
    "preference_of",
    "prompt_from_row",
    "prompt_key",
    "question_from_row",
    "read_comparisons",
    "read_conversations",
    "read_judged",
    "read_questions",
    "render_comparisons",
    "render_examples",
    "rendered",
    "sampled",
    "shares",
    "shifted_datum",
    "speaker_columns",
    "stream",
    "usable_comparisons",
    "without_empty_answers",
]
