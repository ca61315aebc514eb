"""The fallback and a model whose family has no renderer: SmolLM2's own chat template, which adds a system message."""

from pathlib import Path

import pytest
from tests.chat.families.agreement import Comparer, Family
from tests.chat.families.conversations import make_conversations

from cookhouse.models.tokenizers import get_tokenizer

pytestmark = [pytest.mark.slow, pytest.mark.real]


def test_it_writes_what_the_template_writes(smollm2: Path) -> None:
    features = ("system", "turns", "specials", "spaces", "empty")
    family = Family(renderer="template", tokenizer=smollm2.name, features=features, tail="\n")
    comparer = Comparer.of(family, get_tokenizer(str(smollm2)), smollm2)
    exact = [comparer.compare(messages) for messages in make_conversations(500, features)]
    assert sum(exact) >= 100
