"""A renderer that writes tools and has the extension property, over the embedded model's tokenizer."""

import pytest

from cookhouse.chat import Renderer, get_renderer
from cookhouse.models.tokenizers import get_tokenizer


@pytest.fixture(scope="session")
def renderer() -> Renderer:
    return get_renderer("qwen3_instruct", get_tokenizer("cookhouse/tiny"))
