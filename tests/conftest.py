"""Fixtures that every test may use."""

import os
from pathlib import Path

import pytest

# Before anything loads transformers: a missing file must fail, not download.
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TINKER_TELEMETRY", "0")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of real tokenizers and data sets, which is not part of the project."""
    folder = Path(os.environ.get("COOKHOUSE_SHARED", Path(__file__).parents[2] / "shared"))
    if not (folder / "tokenizers").is_dir():
        pytest.skip(f"needs the shared tokenizers and data sets; none at {folder} (set COOKHOUSE_SHARED)")
    return folder
