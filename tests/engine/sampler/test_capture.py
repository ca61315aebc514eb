"""What graphs hold, by what torch holds before and after each is recorded; nothing is recorded here."""

import gc
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest
import torch

from cookhouse.engine.sampler import graph as graph_module
from cookhouse.engine.sampler.graph import CudaCapture


class _Graph:
    def replay(self) -> None:
        """Of nothing."""


def test_a_capture_knows_what_its_graphs_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    """Would catch a pool that is taken for free memory, and one that is counted when its graphs have gone."""
    held = 1000
    cuda = MagicMock(CUDAGraph=_Graph, **{"memory_reserved.side_effect": lambda _: held})
    cuda.graph = lambda *_, **__: nullcontext()  # a mock would keep what it is called with
    monkeypatch.setattr(graph_module, "torch", SimpleNamespace(cuda=cuda, Tensor=torch.Tensor))
    monkeypatch.setattr(graph_module, "held_bytes", cuda.memory_reserved)

    def step() -> None:
        nonlocal held
        held += growth.pop(0)

    growth = [50, 300, 0, 20, 0, 0]  # before each recording the step runs once, and takes what all can use
    capture = CudaCapture(torch.device("cuda", 0))
    assert capture.num_bytes == 0
    replays: list[Any] = []
    for expected in (300, 320, 320):
        replays.append(capture(step))
        assert capture.num_bytes == expected
    replays.pop()
    gc.collect()
    assert capture.num_bytes == 320
    replays.clear()
    gc.collect()
    assert capture.num_bytes == 0
    growth = [0, 70]
    replays.append(capture(step))
    assert capture.num_bytes == 70
