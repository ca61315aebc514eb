"""What the benchmarks share: models, processes of their own, memory, and records of results."""

import json
import os
import platform
import subprocess
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any, TypeVar

RESULTS = Path(__file__).parent / "results"

_T = TypeVar("_T")


def model_folder(name: str, folder: Path) -> str:
    """Folder of an embedded model or of `random:HIDDENxLAYERS[xVOCABULARY]`, made there; any other name unchanged."""
    from cookhouse.assets import resolve_model

    return (
        make_random_model(name.removeprefix("random:"), folder) if name.startswith("random:") else resolve_model(name)
    )


def make_random_model(shape: str, folder: Path) -> str:
    """A random Qwen3 beside the embedded tokenizer; a vocabulary of 8192 unless the shape says another."""
    import torch
    from transformers import AutoTokenizer, Qwen3Config, Qwen3ForCausalLM

    from cookhouse.assets import TINY_MODEL, resolve_model

    hidden, layers, vocabulary = (int(part) for part in (shape + "x8192").split("x")[:3])
    tokenizer = AutoTokenizer.from_pretrained(resolve_model(TINY_MODEL))
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=vocabulary,
        hidden_size=hidden,
        intermediate_size=hidden * 3,
        num_hidden_layers=layers,
        num_attention_heads=hidden // 64,
        num_key_value_heads=max(1, hidden // 128),
        head_dim=64,
        tie_word_embeddings=True,
        max_position_embeddings=4096,
    )
    Qwen3ForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


def peak_bytes(pid: int) -> int:
    """Largest resident size that a process has had."""
    lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))


def cpu_seconds(pid: int) -> float:
    """Processor time that a process and its threads have used."""
    # The second field, the name, may hold spaces; what is counted here begins behind it.
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def isolated(function: Callable[..., _T], *arguments: Any) -> _T:
    """Run one side in a fresh process, so that neither's libraries, threads or memory meet the other's."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(function, *arguments).result()


def save_record(name: str, options: dict[str, Any], figures: dict[str, float]) -> None:
    """Write results/NAME.json with the figures, the settings, the machine and the commit."""
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True)
    record = {
        "figures": figures,
        "options": options,
        "machine": f"{platform.machine()}, {len(os.sched_getaffinity(0))} cores",
        "commit": commit.stdout.strip(),
    }
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{name}.json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
