"""Catches two workers of one machine that take the same cores, or promise the same memory twice."""

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest
import torch

from cookhouse.engine import TorchEngine, share
from cookhouse.engine.share import Share
from cookhouse.errors import InputError

CPU = torch.device("cpu")
GIB = 2**30


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, object]]:
    """What a share takes of a machine of 8 cores; this process keeps its own."""
    taken: dict[str, object] = {}
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(share, "allowed_cores", lambda: list(range(8)))
    monkeypatch.setattr(share, "num_threads", lambda: 8)
    monkeypatch.setattr(torch, "set_num_threads", lambda number: taken.update(threads=number))
    if not hasattr(os, "sched_setaffinity"):
        pytest.skip("only Linux binds threads")
    monkeypatch.setattr(os, "sched_setaffinity", lambda _, cores: taken.update(cores=list(cores)))
    yield taken
    os.environ.pop("OMP_NUM_THREADS", None)


@pytest.mark.parametrize("num_sharing", [2, 3, 4, 8])
def test_workers_take_parts_of_the_cores_that_do_not_meet(num_sharing: int, taken: dict[str, object]) -> None:
    """Would catch two workers on one core, and more threads than a part has cores."""
    parts = []
    for index in range(num_sharing):
        os.environ.pop("OMP_NUM_THREADS", None)
        Share(index, num_sharing).take_cores()
        assert taken["threads"] == 8 // num_sharing
        assert os.environ["OMP_NUM_THREADS"] == str(8 // num_sharing)
        assert isinstance(taken["cores"], list)
        parts += taken["cores"]
    assert len(parts) == len(set(parts)) == 8


@pytest.mark.parametrize("num_sharing", [3, 5, 7])
def test_no_core_is_left_over(num_sharing: int, taken: dict[str, object]) -> None:
    """Would catch cores that belong to nobody where they cannot be shared out evenly."""
    cores: set[int] = set()
    for index in range(num_sharing):
        os.environ.pop("OMP_NUM_THREADS", None)
        Share(index, num_sharing).take_cores()
        assert taken["threads"] == 8 // num_sharing, "as many each: what a model computes does not go by its worker"
        assert isinstance(taken["cores"], list)
        cores |= set(taken["cores"])
    assert cores == set(range(8))


def test_more_workers_than_cores_share_them_evenly(taken: dict[str, object]) -> None:
    """Would catch workers that all stand on the first core."""
    cores = []
    for index in range(16):
        os.environ.pop("OMP_NUM_THREADS", None)
        Share(index, 16).take_cores()
        assert taken["threads"] == 1
        cores.append(taken["cores"])
    assert sorted(map(str, cores)) == sorted(str([core]) for core in range(8) for _ in range(2))


def test_a_number_of_threads_that_was_asked_for_is_kept(
    taken: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Would catch an operator's OMP_NUM_THREADS that is written over, and results that change with it."""
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    Share(1, 2).take_cores()
    assert "threads" not in taken
    assert os.environ["OMP_NUM_THREADS"] == "3"
    assert taken["cores"] == [4, 5, 6, 7]


def test_a_worker_that_is_added_computes_with_as_many_threads(taken: dict[str, object]) -> None:
    """Would catch a model that goes on otherwise at a worker which was added later."""
    for index in range(4):
        os.environ.pop("OMP_NUM_THREADS", None)
        Share(index, 2).take_cores()
        assert taken["threads"] == 4
        assert taken["cores"] == list(range(8))[4 * (index % 2) :][:4]


def test_memory_is_not_promised_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Would catch a worker that is added, and a machine that runs out of memory once all take what they may."""
    monkeypatch.setattr(share, "total_bytes", lambda: 22 * GIB + GIB // 2)
    words = (
        "of 22.50 GiB 2 may take 10.00 GiB each, and the server 2.50 GiB; drain one first, or start the server with as "
        "many as it shall have"
    )
    with pytest.raises(InputError, match=words):
        Share(2, 2).free_bytes(CPU)
    with pytest.raises(InputError, match=r"of 22.50 GiB 1 may take"):
        Share(1, 1).free_bytes(CPU)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
    monkeypatch.setattr(share, "device_total_bytes", lambda _: 80 * GIB)
    monkeypatch.setattr(share, "choose_device", lambda _: torch.device("cuda"))
    assert Share(2, 2).device(None) == "cuda:2"
    assert Share(1, 1).device(None) == "cuda:1"
    Share(2, 2).free_bytes(torch.device("cuda", 2))
    with pytest.raises(InputError, match=r"of 80.00 GiB 1 may take 80.00 GiB each; drain one"):
        Share(3, 2).free_bytes(torch.device("cuda", 0))


def test_one_worker_changes_nothing(taken: dict[str, object]) -> None:
    """Would catch a server of one worker that computes otherwise than before there were several."""
    one = Share(0, 1)
    one.take_cores()
    assert taken == {}
    assert "OMP_NUM_THREADS" not in os.environ
    assert one.free_bytes(CPU) is None
    assert one.most_bytes(CPU) is None
    assert one.device("cuda") == "cuda"
    assert one.device(None) is None


def test_a_part_of_the_memory_is_promised(monkeypatch: pytest.MonkeyPatch) -> None:
    """Would catch workers that promise the machine's memory each, or more than is left of it."""
    monkeypatch.setattr(share, "total_bytes", lambda: 22 * GIB + GIB // 2)  # of which 2.5 GiB are the server's
    monkeypatch.setattr(share, "resident_bytes", lambda: 1 * GIB)
    monkeypatch.setattr(share, "available_bytes", lambda: 10 * GIB)
    free = Share(0, 5).free_bytes(CPU)
    assert free is not None
    assert free() == 3 * GIB
    assert Share(0, 5).most_bytes(CPU) == 4 * GIB
    monkeypatch.setattr(share, "available_bytes", lambda: 2 * GIB)
    assert free() == 2 * GIB
    monkeypatch.setattr(share, "resident_bytes", lambda: 5 * GIB)
    assert free() == 0


def test_a_bound_of_memory_is_kept_to(monkeypatch: pytest.MonkeyPatch) -> None:
    """Would catch actors of one node that promise all of its memory, or of its GPU's, each."""
    monkeypatch.setattr(share, "resident_bytes", lambda: 1 * GIB)
    monkeypatch.setattr(share, "available_bytes", lambda: 10 * GIB)
    monkeypatch.setattr(share, "device_total_bytes", lambda _: 80 * GIB)
    monkeypatch.setattr(share, "held_bytes", lambda _: 10 * GIB)
    monkeypatch.setattr(share, "free_bytes", lambda _: 70 * GIB)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    free = Share(0, 1, memory_bytes=4 * GIB, gpu_part=0.5).free_bytes
    of_cpu, of_gpu = free(CPU), free(torch.device("cuda", 0))
    assert of_cpu is not None
    assert of_cpu() == 3 * GIB
    assert of_gpu is not None
    assert of_gpu() == 30 * GIB
    assert Share(0, 1, memory_bytes=4 * GIB).free_bytes(torch.device("cuda", 0)) is None


def test_gpus_are_taken_in_turn_and_shared_where_they_are_few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Would catch workers that all compute on the first GPU, or each take all of its memory."""
    monkeypatch.setattr(share, "choose_device", lambda _: torch.device("cuda"))
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert [Share(index, 3).device(None) for index in range(3)] == ["cuda:0", "cuda:1", "cuda:0"]
    assert Share(2, 3).device("cuda:1") == "cuda:1"
    monkeypatch.setattr(share, "device_total_bytes", lambda _: 80 * GIB)
    monkeypatch.setattr(share, "held_bytes", lambda _: 10 * GIB)
    monkeypatch.setattr(share, "free_bytes", lambda _: 70 * GIB)
    free = [Share(0, 3).free_bytes(torch.device("cuda", index)) for index in range(2)]
    assert [one() for one in free if one is not None] == [30 * GIB, 70 * GIB]


def test_an_unknown_device_is_refused() -> None:
    with pytest.raises(InputError, match="nonsense"):
        Share(0, 2).device("nonsense")


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="only Linux binds threads")
def test_cores_are_really_taken() -> None:
    """Would catch a share that is computed, and given to nobody."""
    code = (
        "import os, torch; from cookhouse.engine.share import Share; Share(1, 2).take_cores(); "
        "print(len(os.sched_getaffinity(0)), torch.get_num_threads())"
    )
    environment = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    said = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True, timeout=120
    )
    num_cores, num_threads = map(int, said.stdout.split())
    assert num_cores == max(1, len(os.sched_getaffinity(0)) // 2)
    assert 1 <= num_threads <= num_cores


def test_workers_of_equal_shares_say_the_same_of_themselves() -> None:
    """Would catch a server that lists its workers one by one at start, for what differs between them by a hair."""
    engines = [
        TorchEngine(device="cpu", share_bytes=3 * GIB, free_bytes=free) for free in (lambda: 2 * GIB, lambda: GIB)
    ]
    first, second = (engine.describe() for engine in engines)
    assert first == second
    assert first.endswith(", 3.00 GiB of memory")
    assert "memory" not in TorchEngine(device="cpu").describe()
