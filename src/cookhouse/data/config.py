"""The config that builds a supervised data set from the user's conversations."""

import logging

import chz

from cookhouse.assets import TINY_MODEL, data_file
from cookhouse.chat import RENDERERS, Renderer, TrainOnWhat, get_renderer, is_built_in
from cookhouse.data.batches.datum import Reduction
from cookhouse.data.batches.examples import Progress, render_examples
from cookhouse.data.batches.supervised import SupervisedDataset
from cookhouse.data.rows.conversations import read_conversations
from cookhouse.data.rows.marks import mark_remarks
from cookhouse.data.rows.remarks import conversation_remarks
from cookhouse.data.sources.source import data_sources
from cookhouse.errors import UnknownNameError
from cookhouse.models.catalog import check_renderer, default_renderer, dims
from cookhouse.models.tokenizers import get_tokenizer
from cookhouse.settings import at_least

_log = logging.getLogger(__name__)


@chz.chz
class ConversationsConfig:
    """Settings of the conversations' source and of their batches."""

    dataset_path: str | None = chz.field(
        default=None,
        doc="JSONL, JSON, CSV or Parquet, a folder or hub id, or a data set by name, module:NAME or file.py:NAME; "
        "several separated by commas; default: the bundled conversations.",
    )
    model_name: str = chz.field(default=TINY_MODEL, doc="Model whose tokenizer and chat format are used.")
    renderer_name: str | None = chz.field(default=None, doc="Chat format; default: the model's own.")
    force_renderer: bool = chz.field(default=False, doc="Take a renderer that does not fit the model.")
    train_on_what: str = chz.field(default="all_assistant_messages", doc="Which messages carry loss.")
    max_length: int = chz.field(default=32768, doc="Tokens per example, at most; longer ones are truncated.")
    batch_size: int = chz.field(default=32, doc="Examples in a batch.")
    reduction: Reduction = chz.field(default="none", doc="mean: weights of an example sum to 1; none: each is 1.")
    n_train_samples: int | None = chz.field(
        default=None, doc="Read only so many rows of each set; default: all.", validator=at_least(1)
    )
    seed: int = chz.field(default=0, doc="Seed of the order within each epoch.")

    def build_renderer(self) -> Renderer:
        """The renderer over the model's tokenizer. Raises `InputError` if either is unknown or they do not fit."""
        return build_renderer(self.model_name, self.renderer_name, force=self.force_renderer)

    def build(self, progress: Progress | None = None) -> SupervisedDataset:
        """Read, render and batch. Every setting and row is checked before anything is trained.

        Raises:
            InputError: something cannot be used; a bad row is named by where it stands.
        """
        train_on_what = parse_train_on_what(self.train_on_what)
        path = self.dataset_path or str(data_file("conversations/train.jsonl"))
        sources = data_sources(path, limit=self.n_train_samples)
        conversations = [conversation for source in sources for conversation in read_conversations(source)]
        renderer = self.build_renderer()
        examples = render_examples(
            conversations, renderer, train_on_what, max_length=self.max_length, progress=progress
        )
        dataset = SupervisedDataset(examples, batch_size=self.batch_size, reduction=self.reduction, seed=self.seed)
        remarks = [
            *conversation_remarks(conversations, train_on_what),
            *mark_remarks(conversations, renderer.encoder),
        ]
        for note in [*remarks, *dataset.notes]:
            _log.warning("%s", note)
        return dataset


def build_renderer(model_name: str, renderer_name: str | None = None, *, force: bool = False) -> Renderer:
    """The named renderer, or the model's own, over the model's tokenizer. One of the user's own is taken to fit.

    Raises:
        InputError: the renderer is unknown or does not fit the model, or the tokenizer cannot be loaded. Of what is
            rendered then: a token is beyond the model's embeddings, as far as its config.json is here.
    """
    name = renderer_name or default_renderer(model_name)
    if is_built_in(name):
        check_renderer(model_name, name, force=force)
    else:
        RENDERERS.find(name)  # an unknown name is refused before a tokenizer is loaded
    renderer = get_renderer(name, get_tokenizer(model_name))
    known = dims(model_name)
    renderer.encoder.num_embeddings = None if known is None else known.vocab_size
    return renderer


def parse_train_on_what(name: str) -> TrainOnWhat:
    """The mode of that name. Raises `UnknownNameError` with near matches."""
    modes = [mode.value for mode in TrainOnWhat]
    if name not in modes:
        raise UnknownNameError("train_on_what", name, modes)
    return TrainOnWhat(name)
