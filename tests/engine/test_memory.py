"""Catches a budget taken from the machine's memory where a container has less."""

import os
import resource
from pathlib import Path
from typing import Any

import pytest
import torch

from cookhouse.engine import host_memory
from cookhouse.engine.control_groups import ControlGroups
from cookhouse.engine.memory import cache_bytes, free_bytes, note_pool


def test_the_machine_or_the_container_whichever_has_less(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_memory, "_machine_bytes", lambda _: 900)
    for limit, expected in ((None, 900), (1000, 900), (350, 350), (0, 0)):
        monkeypatch.setattr(ControlGroups, "free_bytes", lambda _, limit=limit: limit)
        assert free_bytes(torch.device("cpu")) == expected


def test_limits_of_a_batch_system_are_memory_as_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Would catch a budget of the whole machine under `ulimit -v` or `ulimit -d`, of which allocations fail."""
    limits = {resource.RLIMIT_AS: 50 * 4096, resource.RLIMIT_DATA: resource.RLIM_INFINITY}
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (limits[kind], resource.RLIM_INFINITY))
    monkeypatch.setattr(os, "sysconf", lambda _: 4096)
    (tmp_path / "statm").write_text("30 20 5 1 0 10 0")
    assert host_memory._own_limits(tmp_path / "statm") == [(50 * 4096, 30 * 4096)]
    limits[resource.RLIMIT_DATA] = 15 * 4096
    assert host_memory._own_limits(tmp_path / "statm")[1] == (15 * 4096, 10 * 4096)
    monkeypatch.setattr(host_memory, "_machine_bytes", lambda _: 10**9)
    monkeypatch.setattr(ControlGroups, "free_bytes", lambda _: None)
    for own, expected in (([], 10**9), ([(900, 300), (800, 300)], 500), ([(900, 1000)], 0)):
        monkeypatch.setattr(host_memory, "_own_limits", lambda own=own: own)
        assert host_memory.available_bytes() == expected


@pytest.mark.parametrize("tells_free", [False, True])
def test_memory_is_found_without_proc(tells_free: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Would catch an engine that does not start where there is no /proc/meminfo, or one of an old kernel."""
    found = {"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": 1000} | ({"SC_AVPHYS_PAGES": 300} if tells_free else {})
    monkeypatch.setattr(os, "sysconf_names", dict.fromkeys(found, 0))
    monkeypatch.setattr(os, "sysconf", found.__getitem__)
    (tmp_path / "old").write_text("MemTotal: 9 kB\n")
    expected = (300 if tells_free else 500) * 4096
    assert [host_memory._machine_bytes(tmp_path / name) for name in ("none", "old")] == [expected] * 2
    (tmp_path / "meminfo").write_text("MemTotal: 9 kB\nMemAvailable:   5 kB\n")
    assert host_memory._machine_bytes(tmp_path / "meminfo") == 5 * 1024


@pytest.mark.parametrize(("device", "share"), [("cuda", 40), ("cpu", 50)])
def test_a_cache_is_as_large_as_memory_allows_and_a_model_can_use(device: str, share: int) -> None:
    """Would catch a cache of half a gigabyte where many are free, and millions of blocks for a model whose sequences
    are short, which take minutes to count.
    """
    spare = 100 * 2**30
    assert cache_bytes(torch.device(device), spare, 2**30, None) == share * 2**30
    assert cache_bytes(torch.device(device), spare, 2**20, None) == 2**30
    assert cache_bytes(torch.device(device), spare, 2**20, 2**35) == 2**35
    assert cache_bytes(torch.device(device), spare, 2**20, 2**40) == spare


def test_what_graphs_hold_is_not_free(monkeypatch: pytest.MonkeyPatch) -> None:
    """Would catch memory that is promised, and held by a pool that nothing but captured steps can use."""
    for name, value in {"mem_get_info": (1000, 5000), "memory_reserved": 900, "memory_allocated": 300}.items():
        monkeypatch.setattr(torch.cuda, name, lambda _, value=value: value)
    device, other = torch.device("cuda", 0), torch.device("cuda", 1)
    assert free_bytes(device) == 1600
    pool: Any = type("Pool", (), {"device": device, "num_bytes": 200})()
    note_pool(pool)
    assert (free_bytes(device), free_bytes(other)) == (1400, 1600)
    pool.num_bytes = 2000
    assert free_bytes(device) == 0
    del pool
    assert free_bytes(device) == 1600
