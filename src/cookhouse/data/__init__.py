"""Rows from files, from the hub and from functions, as conversations, preferences or prompts; and the batches that a
supervised run trains on.
"""

from cookhouse.data.batches.comparisons import Ties, render_comparisons, usable_comparisons
from cookhouse.data.batches.datum import PlacedImage, Reduction, datum_from_example, shifted_datum
from cookhouse.data.batches.examples import (
    Example,
    ExampleStatistics,
    Progress,
    example_renderer,
    example_statistics,
    render_examples,
)
from cookhouse.data.batches.mix import MixedDataset, parse_weights, shares
from cookhouse.data.batches.order import BlockOrder
from cookhouse.data.batches.stream import ShuffledRows, StreamedBatch, StreamedDataset, cut_example
from cookhouse.data.batches.supervised import SupervisedDataset
from cookhouse.data.config import ConversationsConfig, build_renderer, parse_train_on_what
from cookhouse.data.fingerprint import Fingerprint, fingerprint_of
from cookhouse.data.parsing import BadRows, OnBadRow, parse_each
from cookhouse.data.rows.comparisons import (
    in_both_orders,
    last_turn_differs,
    paired,
    preference_of,
    preferred,
    read_judged,
    read_pairs,
    swapped,
    without_ties,
)
from cookhouse.data.rows.conversations import (
    conversation_of,
    conversations_from_rows,
    conversations_of,
    iter_rows,
    read_conversations,
)
from cookhouse.data.rows.held_out import Prompted, held_out_prompts, is_drawn, prompt_key
from cookhouse.data.rows.labeled import LabeledRow, labeled_from_row, matched
from cookhouse.data.rows.pairs import (
    ComparisonRow,
    PreferenceRow,
    PromptRow,
    comparison_from_row,
    preference_from_row,
    prompt_from_row,
    question_from_row,
    read_comparisons,
    read_preferences,
    read_prompts,
    read_questions,
)
from cookhouse.data.rows.shapes import Conversation, check_columns, conversation_from_row
from cookhouse.data.sources.given import GivenRows
from cookhouse.data.sources.hub import HubDatasetStore
from cookhouse.data.sources.known import KnownSet
from cookhouse.data.sources.noop import NoopDatasetStore
from cookhouse.data.sources.parts import HeldOut, JoinedRows, SomeRows, sampled
from cookhouse.data.sources.registry import DATASETS, RowsFunction
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
from cookhouse.data.sources.store import DatasetStore, HubSplit, RawRow, Rows, num_rows
from cookhouse.data.sources.tables import ListRows

__all__ = [
    "DATASETS",
    "BadRows",
    "BlockOrder",
    "ComparisonRow",
    "Conversation",
    "ConversationsConfig",
    "DataSource",
    "DatasetStore",
    "Example",
    "ExampleStatistics",
    "FileSource",
    "Fingerprint",
    "GivenRows",
    "HeldOut",
    "HubDatasetStore",
    "HubSource",
    "HubSplit",
    "JoinedRows",
    "KnownSet",
    "LabeledRow",
    "ListRows",
    "MixedDataset",
    "NamedSource",
    "NoopDatasetStore",
    "OnBadRow",
    "PlacedImage",
    "PreferenceRow",
    "Progress",
    "PromptRow",
    "Prompted",
    "RawRow",
    "Reduction",
    "Rows",
    "RowsFunction",
    "ShuffledRows",
    "SomeRows",
    "StreamedBatch",
    "StreamedDataset",
    "SupervisedDataset",
    "Ties",
    "build_renderer",
    "check_columns",
    "comparison_from_row",
    "conversation_from_row",
    "conversation_of",
    "conversations_from_rows",
    "conversations_of",
    "cut_example",
    "data_source",
    "data_sources",
    "datum_from_example",
    "example_renderer",
    "example_statistics",
    "fingerprint_of",
    "from_store",
    "held_out_prompts",
    "held_out_source",
    "in_both_orders",
    "is_drawn",
    "iter_rows",
    "labeled_from_row",
    "last_turn_differs",
    "matched",
    "num_rows",
    "paired",
    "parse_each",
    "parse_train_on_what",
    "parse_weights",
    "preference_from_row",
    "preference_of",
    "preferred",
    "prompt_from_row",
    "prompt_key",
    "question_from_row",
    "read_comparisons",
    "read_conversations",
    "read_judged",
    "read_pairs",
    "read_preferences",
    "read_prompts",
    "read_questions",
    "render_comparisons",
    "render_examples",
    "sampled",
    "shares",
    "shifted_datum",
    "swapped",
    "usable_comparisons",
    "without_ties",
]
