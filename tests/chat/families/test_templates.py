"""Every renderer against its family's chat template, over conversations that are made to be awkward."""

from pathlib import Path

import pytest
from tests.chat.families.agreement import Comparer, Family
from tests.chat.families.conversations import make_conversations
from tests.chat.families.families import FAMILIES

from cookhouse.models.tokenizers import get_tokenizer

COUNT = 1200


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_every_conversation_is_written_as_the_template_writes_it(shared: Path, family: Family) -> None:
    folder = shared / "tokenizers" / family.tokenizer
    comparer = Comparer.of(family, get_tokenizer(str(folder)), folder)
    num_exact = sum(comparer.compare(messages) for messages in make_conversations(COUNT, family.features))
    assert num_exact >= family.min_exact
