"""What is chosen for a device, and what holds while a pass must be repeatable."""

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from unittest.mock import MagicMock

import pytest
import torch

import cookhouse.engine.device as device_module
from cookhouse.engine import switches
from cookhouse.engine.device import choose_device, choose_dtype, deterministic
from cookhouse.engine.kernels.cpu.functions import CpuKernels
from cookhouse.errors import InputError


def test_unusable_devices_are_refused_by_name() -> None:
    """Would catch a device that fails in the middle of a run instead."""
    with pytest.raises(InputError, match="unknown device 'gpu'"):
        choose_device("gpu")
    with pytest.raises(InputError, match="does not compute on device 'meta'"):
        choose_device("meta")
    with pytest.raises(InputError, match="'cuda:99' was asked for"):
        choose_device("cuda:99")


@pytest.mark.parametrize("name", ["cuda:256", "cuda:300", "cuda:2"])
def test_a_device_beyond_the_last_is_refused_by_its_own_name(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Would catch another device taken in its place: of an index torch keeps eight bits."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    with pytest.raises(InputError, match=f"device '{name}' was asked for and this machine has 2"):
        choose_device(name)


def test_deterministic_holds_for_its_extent_alone() -> None:
    """Would catch a setting left behind, under which sampling's cumulative sums fail on a GPU."""
    before = torch.get_deterministic_debug_mode()
    with deterministic():
        assert torch.are_deterministic_algorithms_enabled()
        assert not torch.utils.deterministic.fill_uninitialized_memory  # type: ignore[attr-defined]
    assert torch.get_deterministic_debug_mode() == before
    assert torch.utils.deterministic.fill_uninitialized_memory  # type: ignore[attr-defined]


@pytest.mark.parametrize(("gains", "expected"), [(True, torch.bfloat16), (False, torch.float32), (None, torch.float32)])
def test_a_cpu_computes_in_bf16_where_it_gains(
    gains: bool | None, expected: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Would catch half the speed given away, bf16 where it is emulated, and a precision that cannot be chosen."""
    kernels = None if gains is None else SimpleNamespace(gains_from_bf16=gains)
    monkeypatch.setattr(device_module, "cpu_kernels", lambda: kernels)
    cpu = torch.device("cpu")
    assert choose_dtype(None, cpu) == expected
    assert choose_dtype("float32", cpu) == torch.float32
    assert choose_dtype("bfloat16", cpu) == torch.bfloat16


@pytest.mark.parametrize(
    ("tiles", "dots", "gains"), [(True, True, True), (False, True, True), (True, False, True), (False, False, False)]
)
def test_a_processor_gains_from_bf16_by_tiles_or_dot_products(tiles: bool, dots: bool, gains: bool) -> None:
    """Would catch a processor with dot products alone that computes in fp32, at two thirds of its speed."""
    compiled = MagicMock()
    compiled.has_tiles.return_value, compiled.has_bf16_dots.return_value = tiles, dots
    assert CpuKernels(compiled, None).gains_from_bf16 is gains


@pytest.mark.parametrize("chosen", [set(), {"fa3"}])
def test_flash_attention_3_is_activated_once_where_it_is_asked_for(
    chosen: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Would catch figures of FlashAttention 2 that are taken for those of 3, and one that is not installed."""
    activated: list[str] = []
    for name, value in {"is_available": True, "device_count": 1, "current_device": 0, "set_device": None}.items():
        monkeypatch.setattr(torch.cuda, name, lambda *_, value=value: value)
    monkeypatch.setattr(torch.backends.cuda, "matmul", SimpleNamespace())
    monkeypatch.setattr(torch.nn.attention, "activate_flash_attention_impl", activated.append)
    monkeypatch.setattr(switches, "_chosen", lambda: frozenset(chosen))
    device_module._activate_fa3.cache_clear()
    assert choose_device("cuda") == choose_device("cuda:0") == torch.device("cuda", 0)
    assert activated == ["FA3"] * len(chosen)
    device_module._activate_fa3.cache_clear()
    monkeypatch.setattr(torch.nn.attention, "activate_flash_attention_impl", MagicMock(side_effect=ImportError("none")))
    if chosen:
        with pytest.raises(InputError, match=r"COOKHOUSE_GPU_TRIALS names fa3, which cannot be used here \(none\)"):
            choose_device("cuda")


@pytest.mark.gpu
def test_cuda_computes_fp32_products_in_fp32() -> None:
    """Would catch TF32, whose products are off by 1e-3; sums of 4096 of them in fp32 are off by under 1e-5."""
    device = choose_device("cuda")
    assert device.index is not None
    assert choose_dtype("float32", device) == torch.float32
    a, b = (torch.randn(512, 4096, generator=torch.Generator().manual_seed(seed)).to(device) for seed in (0, 1))
    error = ((a @ b.T).double() - a.double() @ b.double().T).abs().max() / 64
    assert float(error) < 1e-5


@pytest.mark.parametrize("name", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_sums_at_one_place_come_out_the_same_to_the_bit(name: str) -> None:
    """Would catch additions by atomics, whose order varies."""
    device = choose_device(name)
    values = torch.randn(100_000, device=device)
    rows = torch.randint(0, 10, (100_000,), device=device)
    with num_threads(2), deterministic():
        sums = [torch.zeros(10, device=device).index_put_((rows,), values, accumulate=True) for _ in range(20)]
    assert all(torch.equal(one, sums[0]) for one in sums)


@contextmanager
def num_threads(number: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)
