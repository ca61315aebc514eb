"""Fixtures that every test may use."""

import atexit
import gc
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from contextlib import nullcontext
from importlib import import_module
from pathlib import Path

import pytest
from scripts.get_smollm2 import default_folder

from cookhouse.engine.instructions import narrow_torch

pytest_plugins = ["tests.limits"]

# Before anything loads transformers: a missing file must fail, not download.
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TINKER_TELEMETRY", "0")
# Where the library `datasets` prepares sets: those of the tests are made anew in each run.
os.environ["HF_DATASETS_CACHE"] = tempfile.mkdtemp(prefix="cookhouse-datasets-")
atexit.register(shutil.rmtree, os.environ["HF_DATASETS_CACHE"], ignore_errors=True)
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
# Threads that wait for one another sleep instead of spinning: tests, and the engines that they start, share the cores.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
# What a developer chose for runs of their own; engines in other processes would take it.
for name in (
    "COOKHOUSE_DEVICE",
    "COOKHOUSE_PRECISION",
    "COOKHOUSE_MAX_CACHE_BYTES",
    "COOKHOUSE_MAX_SNAPSHOT_FILE_BYTES",
):
    os.environ.pop(name, None)
narrow_torch(os.environ)
# A shell makes what it starts in the background ignore Ctrl-C, and its children inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--device", default="cpu", choices=["cpu", "cuda"], help="where engines compute; default: cpu")
    parser.addoption("--write-transcripts", action="store_true", help="write the pages of docs/journeys anew")
    # Here, before conftests of packages load Triton, which reads it once: its kernels then run on CPU tensors.
    if parser.parse_known_args([*shlex.split(os.environ.get("PYTEST_ADDOPTS", "")), *sys.argv[1:]]).device == "cpu":
        os.environ["TRITON_INTERPRET"] = "1"


def pytest_configure(config: pytest.Config) -> None:
    """Let engines, those of other processes too, choose the device that is asked for: they take a GPU that they see."""
    if config.getoption("--device") == "cpu":
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
        return
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    import torch

    if not torch.cuda.is_available():
        raise pytest.UsageError("--device cuda: torch finds no GPU here")


# Fixtures that start a browser.
_BROWSERS = frozenset(("chromium", "started"))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark as slow what starts a browser; skip what needs a GPU unless the tests run on one."""
    for item in items:
        if not _BROWSERS.isdisjoint(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.slow)
        if config.getoption("--device") == "cpu" and item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.skip(reason="needs a GPU: pytest --device cuda"))


def pytest_collection_finish() -> None:
    """Leave a million objects of the tests themselves out of garbage collection, and run full collections rarely: each
    stopped every thread for most of a second. Commands, which are imported when they are asked for, are imported before
    that: one that is first asked for by a test which has put something in the place of another would keep that.
    """
    if "cookhouse.cli.main" in sys.modules:
        from cookhouse.cli.help import COMMANDS

        for command in COMMANDS.values():
            import_module(f"cookhouse.cli.{command.place.partition(':')[0]}")
    gc.collect()
    gc.freeze()
    gc.set_threshold(700, 10, 100)


_GROWTH_PAGES = 2**20
_collected_pages = 0


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown() -> None:
    """Collect what engines leave: each reserves gigabytes of address space for its cache, and a process that holds more
    than there is memory cannot start another.
    """
    global _collected_pages
    pages = _num_data_pages()
    if pages > _collected_pages + _GROWTH_PAGES:
        gc.collect()
        _collected_pages = _num_data_pages()


def _num_data_pages() -> int:
    try:
        return int(Path("/proc/self/statm").read_text().split()[5])
    except OSError:
        return 0


@pytest.fixture(autouse=True)
def hosted_service_is_out_of_reach(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody asks the hosted service what it offers and takes, wherever the tests run; others are asked, each anew."""
    from cookhouse.service import offer

    ask = offer._ask
    monkeypatch.setattr(offer, "_ask", lambda url, key: None if "thinkingmachines" in url else ask(url, key))
    monkeypatch.setattr(offer, "_published", lambda: None)
    monkeypatch.setattr(offer, "_known", {})


@pytest.fixture(autouse=True)
def no_early_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests have the SDK loaded: an engine that starts before it would only take the cores from the other tests.

    Runs in processes of their own have one; `tests/cli/test_early_engine.py` is about it.
    """
    monkeypatch.setattr("cookhouse.service.connection.early_server", lambda _: nullcontext())


@pytest.fixture(scope="session")
def device(request: pytest.FixtureRequest) -> str:
    """Where the engine under test computes."""
    return str(request.config.getoption("--device"))


@pytest.fixture
def fused_sampling(device: str) -> None:
    """Skip where torch samples: by rounding, what it computes depends on a sequence's neighbors in the batch."""
    from cookhouse.engine.kernels.cpu.decode.build import library

    if device != "cpu" or library() is None:
        pytest.skip("samples are the same to the bit only on a CPU with a C++ compiler")


@pytest.fixture
def nothing_declared(monkeypatch: pytest.MonkeyPatch) -> None:
    """No metric of a user's own, as at the start of a process; what a test declares is forgotten after it."""
    monkeypatch.setattr("cookhouse.telemetry.declared._OWN", {})


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


@pytest.fixture(scope="session")
def smollm2() -> Path:
    """The folder of a pretrained model, SmolLM2-135M-Instruct, made at first use and kept in the user's cache."""
    folder = default_folder()
    made = subprocess.run(
        [sys.executable, "-m", "scripts.get_smollm2", str(folder)],
        cwd=Path(__file__).parents[1],
        capture_output=True,
        text=True,
        check=False,
    )
    if made.returncode:
        pytest.skip(f"needs a pretrained model: {made.stderr.strip().splitlines()[-1]}")
    return folder
