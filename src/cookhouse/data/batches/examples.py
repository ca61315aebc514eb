"""Conversations to tokenized examples, and what there is to say about them before training.

Legend: T positions.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
import tinker
from numpy.typing import NDArray

from cookhouse.chat import Encoder, Renderer, SupervisedExample, TrainOnWhat
from cookhouse.data.batches.datum import PlacedImage, tokens_and_images, truncated_length
from cookhouse.data.parsing import BadRows, parse_each
from cookhouse.data.rows.shapes import Conversation
from cookhouse.errors import InputError

_ENDS_OF_TEXT = ("<|endoftext|>", "<|end_of_text|>")
"""End a document of models whose tokenizer, made for chat, has the end of a message for its end of sequence."""

Progress = Callable[[int, int], None]
"""Called with the number done and the number in all, some hundred times at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """One tokenized sequence with a weight for each token, not shifted, and cut to the maximum length."""

    tokens_T: NDArray[np.int32]
    weights_T: NDArray[np.float32]
    source: str
    num_cut_tokens: int
    """Tokens lost to the maximum length."""
    images: Sequence[PlacedImage] = ()

    @property
    def num_trained_tokens(self) -> int:
        """Tokens with weight that something precedes; the first token is predicted by nothing."""
        return int(np.count_nonzero(self.weights_T[1:]))


@dataclass(frozen=True, slots=True, kw_only=True)
class ExampleStatistics:
    """Figures of a set of examples; tokens are counted after cutting."""

    num_examples: int
    num_tokens: int
    num_trained_tokens: int
    num_truncated: int
    num_cut_tokens: int
    num_positions: int
    """Of the datums of those that have a trained token: each has one less than tokens."""
    num_untrained: int
    """Examples without a trained token, which training leaves out."""
    longest_tokens: int

    @property
    def trained_share(self) -> float:
        """Trained tokens by all tokens, in [0, 1]."""
        return self.num_trained_tokens / self.num_tokens if self.num_tokens else 0.0


def render_examples(
    conversations: Sequence[Conversation],
    renderer: Renderer,
    train_on_what: TrainOnWhat,
    *,
    max_length: int,
    progress: Progress | None = None,
    bad: BadRows | None = None,
) -> list[Example]:
    """The examples of conversations in order, each tokenized once; without the extension property a conversation may
    give several, one for each assistant turn. Those left without a trained token are among them.

    Raises:
        InputError: `max_length` is below 2.
        BadRowsError: the renderer refuses conversations, each as `source: reason`, and `bad` does not leave them out.
    """
    render = example_renderer(renderer, train_on_what, max_length=max_length)
    return list(chain.from_iterable(parse_each(_watched(conversations, progress), render, bad)))


def example_renderer(
    renderer: Renderer, train_on_what: TrainOnWhat, *, max_length: int
) -> Callable[[Conversation], list[Example]]:
    """Function that makes the examples of one conversation; it raises `InputError` as `source: reason`.

    Raises:
        InputError: `max_length` is below 2.
    """
    if max_length < 2:
        raise InputError(f"max_length is {max_length}; training needs at least 2 tokens, one to predict the other")

    def render(conversation: Conversation) -> list[Example]:
        found = rendered(conversation, renderer, train_on_what)
        return [_example(model_input, weights, max_length, conversation.source) for model_input, weights in found]

    return render


def rendered(conversation: Conversation, renderer: Renderer, train_on_what: TrainOnWhat) -> list[SupervisedExample]:
    """Examples of a conversation, or of a plain text: this has no chat format, is trained on as a whole, and
    stands between the tokenizer's own begin and end of text. Raises `InputError` as `source: reason`.
    """
    if conversation.text is not None:
        return [_plain(conversation.text, renderer.encoder)]
    try:
        return renderer.build_supervised_examples(conversation.messages, train_on_what)
    except InputError as error:
        raise InputError(f"{conversation.source}: {error}") from error


def _plain(text: str, encoder: Encoder) -> SupervisedExample:
    tokenizer = encoder.tokenizer
    # Only some tokenizers begin a text with the token that they have for it.
    begin = [token for token in tokenizer.encode("", add_special_tokens=True) if token == tokenizer.bos_token_id]
    end_id = next((encoder.id_of(mark) for mark in _ENDS_OF_TEXT if encoder.has(mark)), tokenizer.eos_token_id)
    end = [] if end_id is None else [end_id]
    written = [*encoder.encode([text]), *end]
    return tinker.ModelInput.from_ints([*begin, *written]), [0.0] * len(begin) + [1.0] * len(written)


def _example(model_input: tinker.ModelInput, weights: Sequence[float], max_length: int, source: str) -> Example:
    tokens_T, images = tokens_and_images(model_input)
    length = truncated_length(tokens_T.size, images, max_length)
    return Example(
        tokens_T=tokens_T[:length].astype(np.int32),
        weights_T=np.array(weights[:length], dtype=np.float32),
        source=source,
        num_cut_tokens=tokens_T.size - length,
        images=tuple(image for image in images if image.end <= length),
    )


def _watched(conversations: Sequence[Conversation], progress: Progress | None) -> Iterator[Conversation]:
    stride = max(len(conversations) // 100, 1)
    for index, conversation in enumerate(conversations, start=1):
        yield conversation
        if progress is not None and (index % stride == 0 or index == len(conversations)):
            progress(index, len(conversations))


def example_statistics(examples: Sequence[Example]) -> ExampleStatistics:
    """Counts over examples."""
    trained = [example.num_trained_tokens for example in examples]
    return ExampleStatistics(
        num_examples=len(examples),
        num_tokens=sum(example.tokens_T.size for example in examples),
        num_trained_tokens=sum(trained),
        num_truncated=sum(example.num_cut_tokens > 0 for example in examples),
        num_cut_tokens=sum(example.num_cut_tokens for example in examples),
        num_positions=sum(e.tokens_T.size - 1 for e, count in zip(examples, trained, strict=True) if count),
        num_untrained=trained.count(0),
        longest_tokens=max((example.tokens_T.size for example in examples), default=0),
    )
