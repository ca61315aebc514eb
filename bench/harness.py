"""What the benchmarks share: options, models, processes of their own, clocks, memory, and records of results."""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any, TypeVar

from bench.processor import calibrate, processor_model, share_of_peak
from bench.shapes import make_random_model

from cookhouse.algorithms.base import process_tree

RESULTS = Path(__file__).parent / "results"
MODEL_HELP = "embedded name, folder, random:HIDDENxLAYERS[xVOCABULARY] or random:qwen3-0.6b, -1.7b, -4b, -8b"

_KEY = "tml-bench"
_T = TypeVar("_T")


def parse_options(parser: argparse.ArgumentParser) -> argparse.Namespace:
    """Read the command line, with the options that every benchmark of an engine takes."""
    import torch

    parser.add_argument(
        "--device",
        choices=["cpu", "cuda"],
        default="cuda" if torch.cuda.is_available() else "cpu",
        help="of both sides; default: cuda where there is one",
    )
    parser.add_argument("--save", action="store_true", help="write its record under bench/results")
    return parser.parse_args()


def model_folder(name: str, folder: Path, device: str) -> str:
    """Folder of an embedded model, or of one with random weights that is made there; any other name unchanged.

    COOKHOUSE_BENCH_MODELS names a folder where those with random weights are kept for the benchmarks that follow.
    """
    from cookhouse.assets import resolve_model

    if name.startswith("random:"):
        shape, kept = name.removeprefix("random:"), os.environ.get("COOKHOUSE_BENCH_MODELS")
        if kept is None:
            isolated(make_random_model, shape, folder, device)
            return str(folder)
        whole, part = (Path(kept) / each for each in (shape, f"{shape}.part"))
        if not whole.exists():
            isolated(make_random_model, shape, part, device)
            part.rename(whole)
        return str(whole)
    return resolve_model(name)


def chat_format(name: str, folder: str) -> str:
    """The renderer of a model's conversations: its own, and for random weights that of the tokenizer they come with."""
    from cookhouse.assets import TINY_MODEL
    from cookhouse.models.catalog import default_renderer

    return default_renderer(TINY_MODEL if name.startswith("random:") else name, files=folder)


def now(device: str) -> float:
    """Seconds of the clock, once the device has done all that was asked of it."""
    if device == "cuda":
        import torch

        torch.cuda.synchronize()
    return time.perf_counter()


def peak_bytes(device: str) -> int:
    """The most memory that this process has held at once: in tensors on the GPU, or resident."""
    if device == "cuda":
        import torch

        return torch.cuda.max_memory_allocated()
    peak = process_tree.peak_bytes([os.getpid()])
    assert peak is not None
    return peak


def isolated(function: Callable[..., _T], *arguments: Any) -> _T:
    """Run one side in a fresh process, so that neither's libraries, threads or memory meet the other's."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(function, *arguments).result()


@dataclass(frozen=True, kw_only=True)
class Server:
    """A server in a process of its own, with its engine in another."""

    url: str
    api_key: str
    device: str
    process: subprocess.Popen[str]

    def peak_bytes(self) -> int:
        """The most memory that it has held at once: what its engine says of its tensors on the GPU, or resident, of all
        of its processes.
        """
        if self.device == "cuda":
            return sum(worker["device_memory"]["peak_bytes"] for worker in self.workers())
        peak = process_tree.peak_bytes(process_tree.tree(self.process.pid))
        assert peak is not None
        return peak

    def workers(self) -> list[dict[str, Any]]:
        """What its engines say of themselves, asked after this was called: each is asked once a second at most."""
        import httpx

        begun, headers = time.monotonic(), {"X-API-Key": self.api_key}
        while True:
            answer = httpx.get(f"{self.url}/api/v1/status", headers=headers, timeout=60, trust_env=False)
            workers: list[dict[str, Any]] = answer.raise_for_status().json()["workers"]
            ages = [worker["status_age_seconds"] for worker in workers]
            if all(age is not None and age < time.monotonic() - begun for age in ages):
                return workers
            time.sleep(0.2)

    def stop(self) -> int:
        """End it; as `peak_bytes` just before."""
        peak = self.peak_bytes()
        self.process.communicate("")
        return peak


@contextmanager
def serving(device: str, *arguments: str) -> Iterator[Server]:
    """A server that answers requests; further `arguments` are those of `python -m cookhouse.server`."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "cookhouse.server", "--device", device, "--json", "--watch-stdin"]
        process = subprocess.Popen(
            [*command, "--state-dir", f"{folder}/state", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"COOKHOUSE_API_KEYS": _KEY},
        )
        try:
            assert process.stdout is not None
            url = json.loads(process.stdout.readline())["url"]
            yield Server(url=url, api_key=_KEY, device=device, process=process)
        finally:
            if process.returncode is None:
                process.communicate("")


def save_record(
    name: str,
    options: dict[str, Any],
    figures: dict[str, float],
    achieved: Mapping[str, tuple[str, float]] | None = None,
) -> None:
    """Write results/NAME.json with the figures, the settings, the machine and the commit; a GPU's name is in both, and
    so are ways to compute that COOKHOUSE_GPU_TRIALS turns on.

    `achieved` has what a figure comes to in a precision, in FLOP/s: its share of what the processor could do is kept.
    """
    machine = f"{platform.machine()}, {len(os.sched_getaffinity(0))} cores"
    if options.get("device") == "cuda":
        import torch

        gpu = torch.cuda.get_device_name()
        machine += f", {gpu}"
        name += "-" + gpu.lower().replace(" ", "-")
        processor = {"model": processor_model()}
    else:
        processor = isolated(calibrate)
        shares = {each: share_of_peak(processor, *of) for each, of in (achieved or {}).items()}
        figures = figures | {f"{each}_share_of_peak": share for each, share in shares.items()}
    trials = os.environ.get("COOKHOUSE_GPU_TRIALS", "")
    if trials:
        name += "-with-" + trials.replace(",", "-")
    record = {
        "figures": figures,
        "options": options,
        "trials": trials,
        "machine": machine,
        "processor": processor,
        "commit": _commit(),
    }
    RESULTS.mkdir(exist_ok=True)
    name = name.replace("/", "-").replace(":", "-")
    (RESULTS / f"{name}.json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


def _commit() -> str:
    """That of the code; where there is no repository, whoever brought the code says it in COOKHOUSE_BENCH_COMMIT."""
    if given := os.environ.get("COOKHOUSE_BENCH_COMMIT"):
        return given
    done = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True)
    return done.stdout.strip()
