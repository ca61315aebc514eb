"""What tests of harnesses share."""

import gc
from collections.abc import Iterator

import pytest


@pytest.fixture
def _no_collection() -> Iterator[None]:
    """Python 3.11 cannot parse a file (Inspect AI does) while pytest tells of garbage, for which it parses, too."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()
