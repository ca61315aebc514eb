"""Catches kernels of adapters that compute something else than torch does, and a build that fails where it need not."""

import logging
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
import torch

from cookhouse.engine.contract import LoraSpec
from cookhouse.engine.lora import AdapterLayout, LoraSite, Segment, SiteAdapters, Weights
from cookhouse.engine.native import build, cpu_kernels
from cookhouse.engine.sampler.native.build import library
from tests.engine.numerics import assert_same, random

pytestmark = pytest.mark.skipif(cpu_kernels() is None, reason="no C++ compiler")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("rank", [1, 16, 20])
def test_adapters_of_short_segments(dtype: torch.dtype, rank: int) -> None:
    """Sizes that are no whole vectors, positions without an adapter, and a segment that only looks."""
    site = LoraSite(name="x", part="mlp", in_features=48, out_features=37)
    layout = AdapterLayout((site,), LoraSpec(rank=rank))
    x, dy = random(30, 48, dtype=dtype, seed=1), random(30, 37, dtype=dtype, seed=2)
    y, dx = random(30, 37, dtype=dtype, seed=3), random(30, 48, dtype=dtype, seed=4)
    want_y, want_dx = y.double(), dx.double()
    segments, wants = [], []
    for seed, (start, stop) in enumerate([(0, 1), (4, 21), (21, 30)]):
        weights = Weights(layout, random(layout.num_parameters, dtype=dtype, seed=seed))
        flat = torch.ones(layout.num_parameters)
        gradient = None if seed == 2 else layout.views(flat)
        segments.append(Segment(start=start, stop=stop, weights=weights, gradient=gradient))
        a, b = (matrix.double() for matrix in weights.views["x"])
        rows = slice(start, stop)
        low, dlow = x[rows].double() @ a.T, dy[rows].double() @ b * layout.scaling
        want_y[rows] += layout.scaling * low @ b.T
        want_dx[rows] += dlow @ a
        da, db = dlow.T @ x[rows].double(), layout.scaling * dy[rows].double().T @ low
        wants.append(
            (flat, torch.cat([da.flatten(), db.flatten()]) + 1 if seed < 2 else torch.ones_like(flat).double())
        )
    adapters = SiteAdapters("x", segments)
    adapters.backward(x, adapters.apply(x, y), dy, dx)
    assert_same(y, want_y, dtype)
    assert_same(dx, want_dx, dtype)
    for flat, want in wants:
        assert_same(flat, want, torch.float32)


_SOURCE = 'extern "C" int answer() { return 42; }'


@pytest.mark.parametrize("case", ["a file", "another's"])
def test_kernels_are_built_where_none_can_be_kept(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Would catch kernels lost to a read-only home, and code loaded from a folder that another user may write to."""
    (tmp_path / "answer.cpp").write_text(_SOURCE, encoding="utf-8")
    cache = tmp_path / "cache"
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(elsewhere))
    if case == "a file":
        cache.write_bytes(b"")
    else:
        monkeypatch.setattr(os, "getuid", lambda: cache.parent.stat().st_uid + 1)
    compiled = build("answer", tmp_path, (), "")
    assert compiled is not None
    assert compiled.answer() == 42
    assert not list(tmp_path.rglob("*.so"))
    assert not list(elsewhere.iterdir())


def test_kernels_are_kept_for_the_next_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "answer.cpp").write_text(_SOURCE, encoding="utf-8")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for _ in range(2):
        assert build("answer", tmp_path, (), "") is not None
    assert len(list(tmp_path.rglob("*.so"))) == 1


def test_numbers_near_zero_stay_what_they_are() -> None:
    """Would catch a library whose loading changes the arithmetic of the process, so that results depend on when it is.

    GCC does that for -ffast-math.
    """
    assert library() is not None
    assert float(torch.tensor([1e-39]) * 0.5) > 0


def test_sources_that_do_not_compile_are_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "broken.cpp").write_text("this is not C++", encoding="utf-8")
    with caplog.at_level(logging.WARNING):
        assert build("broken", tmp_path, (), "something is slower") is None
    assert "so something is slower" in caplog.text


def test_threads_are_bound_to_a_core_each_and_only_where_none_is_left() -> None:
    """Would catch all threads on one core, other threads of the process bound with them, and cores left unused."""
    program = (
        "import os, threading, torch\n"
        "from cookhouse.engine.device import bind_cores, use_cores\n"
        "allowed = os.sched_getaffinity(0)\n"
        "use_cores()\n"
        "seen = []\n"
        "def compute():\n"
        "    is_bound = bind_cores()\n"
        "    masks = [os.sched_getaffinity(int(task)) for task in os.listdir('/proc/self/task')]\n"
        "    bound = [core for mask in masks if len(mask) == 1 for core in mask]\n"
        "    seen.append((is_bound, os.sched_getaffinity(0), bound))\n"
        "thread = threading.Thread(target=compute)\n"
        "thread.start(); thread.join()\n"
        "is_bound, own, bound = seen[0]\n"
        "assert os.sched_getaffinity(0) == allowed\n"
        "assert is_bound == (torch.get_num_threads() == len(allowed))\n"
        "assert own == ({min(allowed)} if is_bound else allowed)\n"
        "assert len(allowed) == 1 or sorted(bound) == (sorted(allowed) if is_bound else [])\n"
    )
    for threads in ({}, {"OMP_NUM_THREADS": "1"}):
        environment = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"} | threads
        subprocess.run([sys.executable, "-c", program], env=environment, check=True)
