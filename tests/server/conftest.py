"""What the tests of the server's parts share."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from cookhouse.server.store.store import Store

OpenStore = Callable[[Path], Store]


@pytest.fixture
def open_store() -> Iterator[OpenStore]:
    """Opens stores, which are closed when the test ends."""
    with ExitStack() as stores:
        yield lambda file: stores.enter_context(closing(Store(file)))
