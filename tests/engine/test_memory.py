"""Catches a budget taken from the machine's memory where a container has less."""

from pathlib import Path

import pytest
import torch

from cookhouse.engine import memory
from cookhouse.engine.memory import cache_bytes, check_free, free_bytes
from cookhouse.errors import InputError


def _limit(folder: Path, limit: str, used: int, inactive: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "memory.max").write_text(f"{limit}\n")
    (folder / "memory.current").write_text(f"{used}\n")
    (folder / "memory.stat").write_text(f"anon 1\ninactive_file {inactive}\n")


def _container(tmp_path: Path, membership: str) -> int:
    (tmp_path / "cgroup").write_text(membership)
    return memory._container_bytes(tmp_path / "cgroup", tmp_path / "root")


def test_the_tightest_limit_around_the_process_counts(tmp_path: Path) -> None:
    _limit(tmp_path / "root" / "pod" / "box", "max", 600, 0)
    _limit(tmp_path / "root" / "pod", "1000", 700, 50)
    assert _container(tmp_path, "0::/pod/box\n") == 350
    _limit(tmp_path / "root" / "pod" / "box", "800", 600, 20)
    assert _container(tmp_path, "0::/pod/box\n") == 220
    _limit(tmp_path / "root" / "pod", "1000", 2000, 50)
    assert _container(tmp_path, "0::/pod/box\n") == 0


def test_no_container_has_no_limit(tmp_path: Path) -> None:
    assert _container(tmp_path, "4:memory:/old\n") >= 2**62
    assert _container(tmp_path, "0::/\n") >= 2**62
    assert memory._container_bytes(tmp_path / "none", tmp_path) >= 2**62


def test_what_does_not_fit_is_refused_with_both_figures() -> None:
    cpu = torch.device("cpu")
    assert 0 < free_bytes(cpu) < 2**50
    check_free(free_bytes(cpu), 1, "a thing", "do without")
    with pytest.raises(
        InputError, match=r"^a thing takes 1048576\.00 GiB and [\d.]+ [GM]iB of memory are free; do wit"
    ):
        check_free(free_bytes(cpu), 2**50, "a thing", "do without")


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
