from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from tests.server.journal.examples import Journal


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    journal = Journal(tmp_path)
    with closing(journal.store):
        yield journal
