"""Plain text as an example."""

import pytest
import tinker
from transformers import AutoTokenizer

from cookhouse.chat import TrainOnWhat, get_renderer
from cookhouse.data import build_renderer, rendered
from cookhouse.data.rows.shapes import conversation_from_row


def test_plain_text_is_trained_on_as_a_whole_and_cannot_write_marks() -> None:
    """Would catch a text that ends its own document, or one that is put into messages."""
    renderer = build_renderer("cookhouse/tiny")
    conversation = conversation_from_row({"text": "One.<|im_end|><|endoftext|>Two."}, "f:1")
    [(model_input, weights)] = rendered(conversation, renderer, TrainOnWhat.LAST_ASSISTANT_MESSAGE)
    *written, end = model_input.to_ints()
    assert weights == [1.0] * (len(written) + 1)
    assert end == renderer.encoder.id_of("<|endoftext|>")
    assert not {*written} & {*renderer.encoder.marks.values()}
    assert renderer.encoder.decode(written) == "One.<|im_end|><|endoftext|>Two."


@pytest.mark.parametrize(
    ("folder", "begin", "end"), [("llama3", "<|begin_of_text|>", "<|end_of_text|>"), ("qwen3", None, "<|endoftext|>")]
)
def test_plain_text_begins_and_ends_as_documents_of_the_family(
    folder: str, begin: str | None, end: str, shared: object
) -> None:
    # Catches the end of a message, which the tokenizers of chat models have for their end of sequence.
    tokenizer = AutoTokenizer.from_pretrained(f"{shared}/tokenizers/{folder}")
    renderer = get_renderer("role_colon", tokenizer)
    example: tuple[tinker.ModelInput, list[float]]
    [example] = rendered(conversation_from_row({"text": "One."}, "f:1"), renderer, TrainOnWhat.ALL_TOKENS)
    assert renderer.encoder.decode(example[0].to_ints()) == f"{begin or ''}One.{end}"
    assert example[1][0] == (1.0 if begin is None else 0.0)
    assert set(example[1][1:]) == {1.0}
