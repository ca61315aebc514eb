"""Fixtures that every test may use."""

import os
from pathlib import Path

import pytest

# Before anything loads transformers: a missing file must fail, not download.
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TINKER_TELEMETRY", "0")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--device", default="cpu", help="device of the engine's tests: cpu (default), cuda or cuda:N")


def pytest_configure(config: pytest.Config) -> None:
    """Have Triton's kernels run through its interpreter where the tests have no GPU; read when Triton is imported."""
    if config.getoption("--device") == "cpu":
        os.environ["TRITON_INTERPRET"] = "1"


@pytest.fixture(scope="session")
def device(request: pytest.FixtureRequest) -> str:
    """Where the engine under test computes."""
    return str(request.config.getoption("--device"))


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
