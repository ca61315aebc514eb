from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from tests.server.conftest import Place
from tests.server.storage.journal.examples import Journal


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    journal = Journal(tmp_path)
    with closing(journal.store):
        yield journal


@pytest.fixture
def placed_journal(tmp_path: Path, place: Place) -> Iterator[Journal]:
    """One in each kind of database."""
    journal = Journal(tmp_path, place)
    with closing(journal.store):
        yield journal
