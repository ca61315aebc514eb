"""One sandbox for the tests of grading: two workers, as good as this system allows."""

from collections.abc import Iterator

import pytest

from cookhouse.grading.sandbox import LocalSandbox


@pytest.fixture(scope="package")
def sandbox() -> Iterator[LocalSandbox]:
    sandbox = LocalSandbox(num_workers=2)
    yield sandbox
    sandbox.close()
